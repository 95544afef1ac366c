package evaluation

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// hostile names try to be markup, to leave their cell, and to steer whoever reads them.
var hostile = []string{
	`<script>alert(1)</script>`, `</title></style><img src=x onerror=alert(1)>`, `" onload="x`, `'><svg/onload=x>`,
	"a | b`c` | d\\", "`<b>", "line\nbreak\r\n## heading",
	"\x1b[31mred\x00\x07", "abc\u202Egnp.exe", "[x](javascript:alert(1))", "https://example.invalid/x @someone", "]]>",
	"--><b>", "\xff\xfe", "{{.Title}}", "&lt;b&gt;", strings.Repeat("long", 5000),
}

// hostileReport has hostile names wherever somebody else may choose them.
func hostileReport(t *testing.T, name string) Report {
	t.Helper()
	all := attempts(rand.New(rand.NewPCG(1, 1)), 6, 2, func(i int) float64 { return float64(i) / 6 })
	for i := range all {
		all[i].StopReason, all[i].Trajectory = name, name
		all[i].Behaviour = &behaviour.Rollout{Reward: all[i].Reward, StopReason: name,
			NewSamples: map[string]int{name: 1}}
		if all[i].Task == "task-003" {
			all[i].Failed = true
		}
	}
	for i := range 2 {
		all[i].Task, all[i].Rollout = name, name+fmt.Sprint(i)
	}
	s, err := Summarise(name, all, Options{Resamples: 100})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(all[2:], all, name, name, Options{Resamples: 100})
	if err != nil {
		t.Fatal(err)
	}
	return Report{Title: name, Policy: name, Endpoint: name, Pack: name, Run: name, Summaries: []Summary{s, s},
		Comparisons: []Comparison{c}, Curve: []CurvePoint{s.Point(1, name, when)}}
}

// TestHostileNames: whatever names are, the page has the same elements, Markdown the same
// lines and columns, and JUnit the same test cases; and no name steers a terminal or
// turns the direction of text.
func TestHostileNames(t *testing.T) {
	write := func(name string) (page, markdown, junit []byte) {
		r := hostileReport(t, name)
		var h, m, j bytes.Buffer
		if err := errors.Join(WriteHTML(&h, r), WriteMarkdown(&m, r), WriteJUnit(&j, r)); err != nil {
			t.Fatal(err)
		}
		return h.Bytes(), m.Bytes(), j.Bytes()
	}
	page, markdown, junit := write("zzz") // where the hostile names stand, which matters for no count
	wantPage, _ := elements(t, page)
	wantJUnit, _ := elements(t, junit)
	for _, name := range hostile {
		p, m, j := write(name)
		if got, _ := elements(t, p); fmt.Sprint(got) != fmt.Sprint(wantPage) {
			t.Errorf("%.40q changes the page: %v, want %v", name, got, wantPage)
		}
		if got, _ := elements(t, j); fmt.Sprint(got) != fmt.Sprint(wantJUnit) {
			t.Errorf("%.40q changes the test cases: %v, want %v", name, got, wantJUnit)
		}
		if got, want := outline(m), outline(markdown); got != want {
			t.Errorf("%.40q changes the Markdown:\n%s", name, m)
		}
		for _, out := range [][]byte{p, m, j} {
			if len(out) > 200_000 || bytes.ContainsAny(out, "\x00\x07\x1b\u202e\r") {
				t.Errorf("%.40q: %d bytes, or control characters: %.100q", name, len(out), out)
			}
		}
	}
}

var code = regexp.MustCompile("`[^`]*`")

// outline of Markdown is how many lines it has and how many bars each, whatever stands in its
// cells; and no unescaped markup.
func outline(markdown []byte) string {
	var bars []string
	for line := range strings.SplitSeq(string(markdown), "\n") {
		line = code.ReplaceAllStringFunc(line, func(s string) string {
			return strings.Repeat("|",
				strings.Count(s, "|"))
		})
		n, markup := 0, 0
		for i := range len(line) {
			if i > 0 && line[i-1] == '\\' {
				continue
			}
			switch line[i] {
			case '|':
				n++
			case '<', '`', '[', '*':
				markup++
			}
		}
		bars = append(bars, fmt.Sprint(n, " ", markup))
	}
	return strings.Join(bars, "\n")
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{"shell-slugify": "shell-slugify", "größe 大きい": "größe 大きい",
		"a\tb\u200b\u2028c\x7f\xff": "a�b��c��", "abcdefgh": "abcdefgh", "abcdefghijklmno": "abcdefghijklm…"} {
		t.Run(in, func(t *testing.T) {
			if got := plain(in, 13); got != want {
				t.Errorf("%q: got %q, want %q", in, got, want)
			}
		})
	}
}
