package app

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Table is how commands print rows: columns two spaces apart, as wide as a terminal shows them,
// numbers on the right. A cell is one line, whatever was written into it.
type Table struct {
	head []string
	rows [][]string
}

// NewTable makes a table with these column titles; without titles it has no head.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row. Floats are cut to four digits; a nil or an empty text is an empty cell.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		switch v := cell.(type) {
		case nil:
		case float64:
			row[i] = strconv.FormatFloat(v, 'g', 4, 64)
		default:
			row[i] = oneLine(fmt.Sprint(v))
		}
	}
	t.rows = append(t.rows, row)
}

// oneLine makes a text of others fit for a cell.
func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Clean(text))
}

// Print writes the table.
func (t *Table) Print(w io.Writer) error {
	for _, line := range t.Lines() {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

const tableGap = 2

// Lines are the lines of the table, without spaces at their ends.
func (t *Table) Lines() []string {
	all := t.rows
	if len(t.head) > 0 {
		all = append([][]string{t.head}, t.rows...)
	}
	var widths []int
	for _, row := range all {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	right := t.numeric(len(widths))
	lines := make([]string, 0, len(all))
	for _, row := range all {
		var b strings.Builder
		for i, cell := range row {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", tableGap))
			}
			space := strings.Repeat(" ", widths[i]-textWidth(cell))
			if right[i] {
				b.WriteString(space + cell)
			} else {
				b.WriteString(cell + space)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// numeric says of each column whether it holds numbers: at least one, and nothing else
// but empty cells and dashes.
func (t *Table) numeric(columns int) []bool {
	numbers, others := make([]bool, columns), make([]bool, columns)
	for _, row := range t.rows {
		for i, cell := range row {
			switch {
			case cell == "" || cell == "-" || cell == "–":
			case isNumber(cell):
				numbers[i] = true
			default:
				others[i] = true
			}
		}
	}
	for i := range numbers {
		numbers[i] = numbers[i] && !others[i]
	}
	return numbers
}

func isNumber(cell string) bool {
	_, err := strconv.ParseFloat(strings.TrimRight(cell, "%"), 64)
	return err == nil
}

func textWidth(text string) int { return Row{{Text: text}}.width() }

// Columns makes a table of what is written to it: a line is a row, and tabs divide its
// cells. Flush prints the table.
type Columns struct {
	w    io.Writer
	text strings.Builder
}

// NewColumns makes an empty table.
func NewColumns(w io.Writer) *Columns { return &Columns{w: w} }

// Write implements [io.Writer].
func (c *Columns) Write(p []byte) (int, error) { return c.text.Write(p) }

// Flush prints the rows that were written. The first one is a head where it has no number.
func (c *Columns) Flush() error {
	t := &Table{}
	for line := range strings.Lines(c.text.String()) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range cells {
			cells[i] = oneLine(strings.TrimRight(cells[i], " "))
			if i > 0 { // the first one may be indented
				cells[i] = strings.TrimLeft(cells[i], " ")
			}
		}
		for len(cells) > 1 && cells[len(cells)-1] == "" { // a tab at the end of a line
			cells = cells[:len(cells)-1]
		}
		if t.head == nil && len(t.rows) == 0 && !slices.ContainsFunc(cells, isNumber) {
			t.head = cells
			continue
		}
		t.rows = append(t.rows, cells)
	}
	c.text.Reset()
	return t.Print(c.w)
}
