package app

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Style is how a terminal shows a text: the parameters of the ANSI sequence that selects it.
type Style string

// The styles that the program uses.
const (
	Plain   Style = ""
	Bold    Style = "1"
	Faint   Style = "2"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Magenta Style = "35"
	Cyan    Style = "36"
)

type (
	// Span is a text in one style. Texts of others go through clean before they become a span.
	Span struct {
		Text  string
		Style Style
	}
	// Row is a line of spans.
	Row []Span
)

// Screen prints rows.
type Screen struct {
	W     io.Writer
	Color bool
	// Width is the number of columns to wrap at; 0 does not wrap.
	Width int
}

// Values of --color.
const (
	ColorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// NewScreen makes a screen. Colour "auto" and width -1 are as the terminal is; a pipe has neither.
func NewScreen(w io.Writer, color string, width int) (*Screen, error) {
	file := FileOf(w)
	terminal := file != nil && term.IsTerminal(int(file.Fd()))
	s := &Screen{W: w, Width: width}
	switch color {
	case ColorAuto:
		s.Color = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	case colorAlways:
		s.Color = true
	case colorNever:
	default:
		return nil, fmt.Errorf("--color %q: must be %s, %s or %s", color, ColorAuto, colorAlways, colorNever)
	}
	if width < 0 {
		s.Width = 0
		if terminal {
			s.Width, _, _ = term.GetSize(int(file.Fd())) // 0 where the terminal does not say
		}
	}
	return s, nil
}

// Print prints rows, wrapped.
func (s *Screen) Print(rows ...Row) {
	for _, r := range rows {
		for _, part := range r.Wrap(s.Width) {
			var b strings.Builder
			for i, piece := range part {
				text := piece.Text
				if i == len(part)-1 {
					text = strings.TrimRight(text, " ")
				}
				if s.Color && piece.Style != Plain && text != "" {
					text = "\x1b[" + string(piece.Style) + "m" + text + "\x1b[0m"
				}
				b.WriteString(text)
			}
			fmt.Fprintln(s.W, b.String())
		}
	}
}

// Clean makes a text of others fit for a terminal: what would move its cursor, colour it or turn
// the direction of writing is shown instead of done. Lines and tabs stay.
func Clean(text string) string {
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

// TextRows are the lines of a text of others in one style. Tabs reach to the next multiple of four.
func TextRows(text string, st Style) []Row {
	text = strings.TrimRight(Clean(text), "\n")
	if text == "" {
		return nil
	}
	var rows []Row
	for line := range strings.SplitSeq(text, "\n") {
		rows = append(rows, Row{{Untab(line), st}})
	}
	return rows
}

const tabWidth = 4

// Untab replaces tabs by spaces, as a terminal shows them.
func Untab(line string) string {
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

func (r Row) width() (n int) {
	for _, s := range r {
		for _, c := range s.Text {
			n += columns(c)
		}
	}
	return n
}

// Wrap cuts a row into rows of at most some columns; 0 is no limit.
func (r Row) Wrap(most int) []Row {
	if most <= 0 || r.width() <= most {
		return []Row{r}
	}
	var rows []Row
	part, used := Row{}, 0
	for _, s := range r {
		start := 0
		for i, c := range s.Text {
			if n := columns(c); used+n > most && used > 0 {
				part = append(part, Span{s.Text[start:i], s.Style})
				rows, part, used, start = append(rows, part), Row{}, 0, i
			}
			used += columns(c)
		}
		part = append(part, Span{s.Text[start:], s.Style})
	}
	return append(rows, part)
}

// pad fills a row with spaces up to some columns.
func (r Row) pad(to int) Row {
	if n := to - r.width(); n > 0 {
		r = append(slices.Clip(r), Span{Text: strings.Repeat(" ", n)})
	}
	return r
}

// Indent puts a mark before each row, after wrapping it to what is left of some columns.
func Indent(rows []Row, mark Span, most int) (out []Row) {
	if most > 0 {
		most = max(1, most-Row{mark}.width())
	}
	for _, r := range rows {
		for _, part := range r.Wrap(most) {
			out = append(out, append(Row{mark}, part...))
		}
	}
	return out
}

// Shorten leaves out the middle of many rows.
func Shorten(rows []Row, head, tail int, full bool) []Row {
	left := len(rows) - head - tail
	if full || left <= 1 { // the note would take as much room as one row
		return rows
	}
	out := append(rows[:head:head], Row{{fmt.Sprintf("… %d lines more (--full) …", left), Faint}})
	return append(out, rows[len(rows)-tail:]...)
}

// SideBySide lays blocks out in columns of one width, with a gap between them.
func SideBySide(blocks [][]Row, columnWidth int, gap string) (out []Row) {
	height := 0
	for _, b := range blocks {
		height = max(height, len(b))
	}
	for i := range height {
		var line Row
		for k, b := range blocks {
			var cell Row
			if i < len(b) {
				cell = b[i]
			}
			if k > 0 {
				line = append(line, Span{gap, Faint})
			}
			line = append(line, cell.pad(columnWidth)...)
		}
		out = append(out, line)
	}
	return out
}

// Line makes what others wrote fit for one line of a terminal.
func Line(text string, most int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, text)
	runes := []rune(clean)
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return clean
}

// CleanOnTerminal passes on what it is given, made fit for the terminal if w is one.
func CleanOnTerminal(w io.Writer) io.Writer {
	if file := FileOf(w); file != nil && term.IsTerminal(int(file.Fd())) {
		return &cleaner{w: w}
	}
	return w
}

type cleaner struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

func (c *cleaner) Write(p []byte) (int, error) {
	text := append(c.rest, p...)
	end := len(text)
	for end > 0 && end > len(text)-utf8.UTFMax && !utf8.RuneStart(text[end-1]) {
		end--
	}
	if end == 0 || utf8.FullRune(text[end-1:]) {
		end = len(text)
	} else {
		end--
	}
	c.rest = append([]byte(nil), text[end:]...)
	_, err := io.WriteString(c.w, Clean(string(text[:end])))
	return len(p), err
}
