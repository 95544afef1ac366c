package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// failed prints which tests failed, how often of how many times they ran, and what the
// first failure said; and so of a package that failed without a test that did. The exit
// status is 1 if anything failed.
func (m measurement) failed(w io.Writer) (code int) {
	type tally struct {
		ran, failed int
		text        string
	}
	tallies, folders := map[string]*tally{}, map[string]bool{}
	count := func(name string, e entry) {
		c := tallies[name]
		if c == nil {
			c = &tally{}
			tallies[name] = c
		}
		c.ran++
		if e.Outcome == "fail" {
			if c.failed++; c.failed == 1 {
				c.text = e.Text
			}
		}
	}
	for _, e := range m.tests {
		count(e.Folder+" "+e.Test, e)
		folders[e.Folder] = folders[e.Folder] || e.Outcome == "fail"
	}
	for _, e := range m.runs {
		if !folders[e.Folder] {
			count(e.Folder, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		if c := tallies[name]; c.failed > 0 {
			code = 1
			fmt.Fprintf(w, "%s failed %d of %d times, at first so:\n%s\n", name, c.failed, c.ran,
				strings.TrimRight(c.text, "\n"))
		}
	}
	return code
}
