package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// PrintJSON writes one value as one line, so that the last line of any command's output is whole.
func PrintJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(data))
	return err
}

// Show prints what a command has found, by print, or as JSON where the flags ask for it.
func Show(cmd *cobra.Command, g *Global, found any, print func(io.Writer) error) error {
	if g.JSON {
		return PrintJSON(cmd.OutOrStdout(), found)
	}
	return print(cmd.OutOrStdout())
}

// Tell is Show in one sentence.
func Tell(cmd *cobra.Command, g *Global, found any, format string, args ...any) error {
	return Show(cmd, g, found, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format, args...)
		return err
	})
}

// Output is standard output. It remembers the first write that failed: a command that has printed
// nothing has not gone well.
type Output struct {
	file *os.File
	mu   sync.Mutex
	err  error
}

// NewOutput makes the output of a program.
func NewOutput(file *os.File) *Output { return &Output{file: file} }

// Write writes to the file.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = cmp.Or(o.err, err)
	}
	return n, err
}

// Err is why the first write failed.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// FileOf is the file that a command's output goes to, or nil.
func FileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *os.File:
		return w
	case *Output:
		return w.file
	}
	return nil
}

// Progress shows where long work is: one line that rewrites itself on a terminal, a plain
// line now and then in a pipe.
type Progress struct {
	w        io.Writer
	Terminal bool
	Quiet    bool
	last     string
}

// NewProgress makes the progress line of a command on standard error.
func NewProgress(g *Global) *Progress {
	return &Progress{w: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd())), Quiet: g.quiet}
}

// Show replaces the current line on a terminal, and prints nothing in a pipe.
func (p *Progress) Show(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.Quiet || !p.Terminal || line == p.last {
		return
	}
	p.last = line
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}

// Line prints a line that stays.
func (p *Progress) Line(format string, args ...any) {
	if p.Quiet {
		return
	}
	if p.Terminal && p.last != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.last = ""
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Clear takes away the line that show has left on a terminal.
func (p *Progress) Clear() {
	if p.last != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.last = ""
	}
}

// Plot draws a curve of values between 0 and 1 as text, one column per value.
func Plot(w io.Writer, title string, values []float64) {
	const rows = 8
	fmt.Fprintln(w, title)
	for row := rows; row >= 1; row-- {
		var b strings.Builder
		for _, v := range values {
			level := v * rows
			switch {
			case level >= float64(row):
				b.WriteString("██ ")
			case level >= float64(row)-0.5:
				b.WriteString("▄▄ ")
			default:
				b.WriteString("   ")
			}
		}
		fmt.Fprintf(w, "%5.2f ┤%s\n", float64(row)/rows, strings.TrimRight(b.String(), " "))
	}
	fmt.Fprintf(w, "      └%s\n", strings.Repeat("───", len(values)))
}

// SortedKeys are a map's keys in order.
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Parameters writes them as --param takes them.
func Parameters(params map[string]any) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		words = append(words, fmt.Sprintf("%s=%v", name, params[name]))
	}
	return strings.Join(words, " ")
}

// Plural counts things: "1 turn", "2 turns".
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// PrintRows shows rows above the line of progress.
func (p *Progress) PrintRows(rows []Row) {
	if p.Quiet || len(rows) == 0 {
		return
	}
	p.Clear()
	s, err := NewScreen(p.w, ColorAuto, -1)
	if err != nil {
		s = &Screen{W: io.Discard}
	}
	s.Print(rows...)
}
