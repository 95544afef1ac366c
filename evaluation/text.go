package evaluation

import (
	"fmt"
	"math"
	"strings"
	"unicode"
)

// How much a report shows of a name, and of a note with names in it.
const (
	longestName = 200
	longestNote = 2000
)

// plain makes what may come from anybody one line of text, at most so many characters long, that
// cannot steer a terminal or turn the direction of what is around it: control and formatting
// characters become U+FFFD. JSON has names as they are.
func plain(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > most {
			b.WriteRune('…')
			break
		}
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// part writes a figure that is mostly between 0 and 1.
func part(v float64) string {
	if v != 0 && (math.Abs(v) < 0.001 || math.Abs(v) >= 10000) {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// amount writes turns, tokens or seconds.
func amount(v float64) string {
	switch {
	case math.Abs(v) >= 1e7:
		return fmt.Sprintf("%.3g", v)
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func intervalText(e Estimate, write func(float64) string) string {
	return fmt.Sprintf("%s (%s to %s)", write(e.Value), write(e.Low), write(e.High))
}

func pValue(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

// percent writes a confidence: 95 %, 99.9 %.
func percent(confidence float64) string { return fmt.Sprintf("%.4g %%", 100*confidence) }

// counted is "1 task", "8 tasks".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
