package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// style is how a terminal shows a text: the parameters of the ANSI sequence that selects it.
type style string

const (
	plain   style = ""
	bold    style = "1"
	faint   style = "2"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	magenta style = "35"
	cyan    style = "36"
)

// span is a text in one style, row a line of them. Texts of others go through clean before they become a span.
type (
	span struct {
		text  string
		style style
	}
	row []span
)

// screen prints rows.
type screen struct {
	w     io.Writer
	color bool
	// width is the number of columns to wrap at; 0 does not wrap.
	width int
}

// Values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// newScreen makes a screen. Colour "auto" and width -1 are as the terminal is; a pipe has neither.
func newScreen(w io.Writer, color string, width int) (*screen, error) {
	file, _ := w.(*os.File)
	terminal := file != nil && term.IsTerminal(int(file.Fd()))
	s := &screen{w: w, width: width}
	switch color {
	case colorAuto:
		s.color = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	case colorAlways:
		s.color = true
	case colorNever:
	default:
		return nil, fmt.Errorf("--color %q: must be %s, %s or %s", color, colorAuto, colorAlways, colorNever)
	}
	if width < 0 {
		s.width = 0
		if terminal {
			s.width, _, _ = term.GetSize(int(file.Fd())) // 0 where the terminal does not say
		}
	}
	return s, nil
}

// print prints rows, wrapped.
func (s *screen) print(rows ...row) {
	for _, r := range rows {
		for _, part := range r.wrap(s.width) {
			var b strings.Builder
			for i, piece := range part {
				text := piece.text
				if i == len(part)-1 {
					text = strings.TrimRight(text, " ")
				}
				if s.color && piece.style != plain && text != "" {
					text = "\x1b[" + string(piece.style) + "m" + text + "\x1b[0m"
				}
				b.WriteString(text)
			}
			fmt.Fprintln(s.w, b.String())
		}
	}
}

// clean makes a text of others fit for a terminal: what would move its cursor, colour it or turn the direction of writing is
// shown instead of done. Lines and tabs stay.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			return r
		case r < ' ':
			return '␀' + r // the pictures of the control characters stand in their order
		case r == 0x7f:
			return '␡'
		case unicode.IsSpace(r):
			return ' '
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// textRows are the lines of a text of others in one style. Tabs reach to the next multiple of four.
func textRows(text string, st style) []row {
	text = strings.TrimRight(clean(text), "\n")
	if text == "" {
		return nil
	}
	var rows []row
	for line := range strings.SplitSeq(text, "\n") {
		rows = append(rows, row{{untab(line), st}})
	}
	return rows
}

const tabWidth = 4

func untab(line string) string {
	var b strings.Builder
	column := 0
	for _, r := range line {
		if r == '\t' {
			n := tabWidth - column%tabWidth
			b.WriteString(strings.Repeat(" ", n))
			column += n
			continue
		}
		b.WriteRune(r)
		column += columns(r)
	}
	return b.String()
}

// columns is how wide a terminal shows a character.
func columns(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

func (r row) width() (n int) {
	for _, s := range r {
		for _, c := range s.text {
			n += columns(c)
		}
	}
	return n
}

// wrap cuts a row into rows of at most some columns; 0 is no limit.
func (r row) wrap(most int) []row {
	if most <= 0 || r.width() <= most {
		return []row{r}
	}
	var rows []row
	part, used := row{}, 0
	for _, s := range r {
		start := 0
		for i, c := range s.text {
			if n := columns(c); used+n > most && used > 0 {
				part = append(part, span{s.text[start:i], s.style})
				rows, part, used, start = append(rows, part), row{}, 0, i
			}
			used += columns(c)
		}
		part = append(part, span{s.text[start:], s.style})
	}
	return append(rows, part)
}

// pad fills a row with spaces up to some columns.
func (r row) pad(to int) row {
	if n := to - r.width(); n > 0 {
		r = append(r[:len(r):len(r)], span{text: strings.Repeat(" ", n)})
	}
	return r
}

// indent puts a mark before each row, after wrapping it to what is left of some columns.
func indent(rows []row, mark span, most int) (out []row) {
	if most > 0 {
		most = max(1, most-row{mark}.width())
	}
	for _, r := range rows {
		for _, part := range r.wrap(most) {
			out = append(out, append(row{mark}, part...))
		}
	}
	return out
}

// shorten leaves out the middle of many rows.
func shorten(rows []row, head, tail int, full bool) []row {
	left := len(rows) - head - tail
	if full || left <= 1 { // the note would take as much room as one row
		return rows
	}
	out := append(rows[:head:head], row{{fmt.Sprintf("… %d lines more (--full) …", left), faint}})
	return append(out, rows[len(rows)-tail:]...)
}

// beside lays blocks out in columns of one width, with a gap between them.
func beside(blocks [][]row, columnWidth int, gap string) (out []row) {
	height := 0
	for _, b := range blocks {
		height = max(height, len(b))
	}
	for i := range height {
		var line row
		for k, b := range blocks {
			var cell row
			if i < len(b) {
				cell = b[i]
			}
			if k > 0 {
				line = append(line, span{gap, faint})
			}
			line = append(line, cell.pad(columnWidth)...)
		}
		out = append(out, line)
	}
	return out
}
