package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
)

// measuring lets a command measure something, which errors name, and print what it found.
func measuring[R any](g *app.Global, what string, cmd *cobra.Command,
	measure func(context.Context, *app.Progress) (R, error)) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		show := app.NewProgress(g)
		r, err := measure(cmd.Context(), show)
		show.Clear()
		if err != nil {
			return fmt.Errorf("measure %s: %w", what, err)
		}
		return app.Show(cmd, g, r, func(w io.Writer) error { return printFigures(w, r) })
	}
	return cmd
}

// figure is one value of a result under its name in JSON. A list of objects has a row for each.
type figure struct {
	name, value string
	rows        [][]figure
}

// printFigures prints a result by the names of its JSON: its values one below the other, and each
// list of objects as a table.
func printFigures(w io.Writer, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	all, err := readFigures(json.NewDecoder(bytes.NewReader(text)), "")
	if err != nil {
		return err
	}
	values := app.NewTable()
	var tables []figure
	for _, f := range all {
		if f.rows == nil {
			values.Row(f.name, f.value)
		} else {
			tables = append(tables, f)
		}
	}
	if err := values.Print(w); err != nil {
		return err
	}
	for _, f := range tables {
		fmt.Fprintf(w, "\n%s:\n", f.name)
		if err := f.table().Print(w); err != nil {
			return err
		}
	}
	return nil
}

// table has a column for each name that a row has, in the order in which they come.
func (f figure) table() *app.Table {
	var names []string
	for _, row := range f.rows {
		for _, cell := range row {
			if !slices.Contains(names, cell.name) {
				names = append(names, cell.name)
			}
		}
	}
	t := app.NewTable(names...)
	for _, row := range f.rows {
		cells := make([]any, len(names))
		for _, cell := range row {
			cells[slices.Index(names, cell.name)] = cell.text()
		}
		t.Row(cells...)
	}
	return t
}

// text is a figure in one cell, also a list of objects.
func (f figure) text() string {
	var rows []string
	for _, row := range f.rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, cell.name+" "+cell.text())
		}
		rows = append(rows, strings.Join(cells, ", "))
	}
	return f.value + strings.Join(rows, "; ")
}

// readFigures reads the next value, which stands under a name. The values of an object stand
// behind its name and a dot.
func readFigures(d *json.Decoder, name string) (all []figure, err error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			inner, err := readFigures(d, strings.TrimPrefix(fmt.Sprintf("%s.%v", name, key), "."))
			if err != nil {
				return nil, err
			}
			all = append(all, inner...)
		}
		_, err = d.Token()
		return all, err
	case json.Delim('['):
		list := figure{name: name}
		var values []string
		for d.More() {
			inner, err := readFigures(d, "")
			if err != nil {
				return nil, err
			}
			if len(inner) == 1 && inner[0].name == "" {
				values = append(values, inner[0].value)
			} else {
				list.rows = append(list.rows, inner)
			}
		}
		list.value = strings.Join(values, ", ")
		_, err = d.Token()
		return []figure{list}, err
	}
	value := ""
	switch v := token.(type) {
	case nil:
	case float64:
		value = number(v)
	default:
		value = fmt.Sprint(v)
	}
	return []figure{{name: name, value: value}}, nil
}

// number is a whole number, or four digits of another one.
func number(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 1e4 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
