package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// printJSON writes one value as one line, so that the last line of any command's output is whole.
func printJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(data))
	return err
}

// progress shows where long work is: one line that rewrites itself on a terminal, a plain line now and then in
// a pipe.
type progress struct {
	w        io.Writer
	terminal bool
	quiet    bool
	last     string
}

func newProgress(g *global) *progress {
	return &progress{w: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd())), quiet: g.quiet}
}

// show replaces the current line on a terminal, and prints nothing in a pipe.
func (p *progress) show(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.quiet || !p.terminal || line == p.last {
		return
	}
	p.last = line
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}

// line prints a line that stays.
func (p *progress) line(format string, args ...any) {
	if p.quiet {
		return
	}
	if p.terminal && p.last != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.last = ""
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear takes away the line that show has left on a terminal.
func (p *progress) clear() {
	if p.last != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.last = ""
	}
}

// plot draws a curve of values between 0 and 1 as text, one column per value.
func plot(w io.Writer, title string, values []float64) {
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

// sortedKeys are a map's keys in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
