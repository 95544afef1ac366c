package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// clean makes control characters of models and tools visible, so that they steer neither the page
// nor the direction of its text.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			return r
		case r == '\r':
			return -1
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

// clip is the beginning of a text, in bytes, clean.
func clip(text string, most int) string {
	part, more := cut(text, 0, most)
	if more {
		part += "…"
	}
	return part
}

// cut is a part of a text that begins at a byte and has at most so many, clean. A character that a
// part's end would cut is the part's; more follows or not.
func cut(text string, from, most int) (part string, more bool) {
	from = max(0, min(from, len(text)))
	for n := 1; n < utf8.UTFMax && from < len(text) && !utf8.RuneStart(text[from]); n++ {
		from++
	}
	to := min(len(text), from+most)
	for n := 1; n < utf8.UTFMax && to < len(text) && !utf8.RuneStart(text[to]); n++ {
		to++
	}
	return clean(text[from:to]), to < len(text)
}

// plain reports whether a text is such a line already, as names mostly are: a
// page has hundreds of them.
func plain(text string) bool {
	if len(text) > 300 {
		return false
	}
	before := byte(' ')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == ' ' && before == ' ' {
			return false
		}
		before = text[i]
	}
	return text == "" || before != ' '
}

// line is a short text on one line.
func line(text string) string {
	if plain(text) {
		return text
	}
	return strings.Join(strings.Fields(clip(text, 300)), " ")
}

// number writes a figure with three digits behind its point, and whole ones whole.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return fmt.Sprintf("%.0f", v)
	}
	if math.Abs(v) >= 1e6 || math.Abs(v) < 1e-3 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// clock writes a moment, in UTC.
func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.DateTime)
}

// span writes a duration with as many digits as it deserves.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// size writes a number of bytes with the unit that suits it.
func size(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/step, 0
	for v >= step && unit < 4 {
		v, unit = v/step, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[unit])
}

// functions are what the templates can call.
var functions = template.FuncMap{
	"line": line, "clean": clean, "number": number, "clock": clock, "span": span,
	"bytes":  size,
	"said":   func(it item, base, at string) saidPart { return saidPart{it, base, at} },
	"behind": func(newest, version int64) int64 { return newest - version },
	"words":  func(text any) string { return strings.ReplaceAll(fmt.Sprint(text), "_", " ") },
}
