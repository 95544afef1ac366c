package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// guarantee is a row of docs/guarantees.md, which tests/readme writes from its own table.
type guarantee struct {
	line    int
	promise string
	tests   []string
}

// promised is a row: a promise, and the tests that guard it.
var promised = regexp.MustCompile("^\\| (.+) \\| (`[\\w/.-]+`(?:, `[\\w/.-]+`)*) \\|$")

// guarantees reads the rows of a document.
func guarantees(file string) (all []guarantee, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if row := promised.FindStringSubmatch(strings.TrimSuffix(line, "\n")); row != nil {
			all = append(all, guarantee{line: n, promise: row[1],
				tests: strings.Split(strings.Trim(row[2], "`"), "`, `")})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no row of a promise and its tests: write it by `task generate`", file)
	}
	return all, nil
}

// measurement is what a file says: its tests, its packages with their processor time, and how
// each run of a package ended.
type measurement struct{ tests, packages, runs []entry }

func read(file string) (m measurement, err error) {
	f, err := os.Open(file)
	if err != nil {
		return m, err
	}
	defer f.Close()
	folders := map[string]*entry{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<30) // a failure may say much
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return m, fmt.Errorf("%s: %w", file, err)
		}
		if e.Test != "" {
			m.tests = append(m.tests, e)
			continue
		}
		if e.Outcome != "" {
			m.runs = append(m.runs, e)
		}
		if folders[e.Folder] == nil {
			folders[e.Folder] = &entry{Folder: e.Folder}
		}
		p := folders[e.Folder]
		p.Seconds, p.CPU = p.Seconds+e.Seconds, p.CPU+e.CPU
	}
	for _, p := range folders {
		m.packages = append(m.packages, *p)
	}
	for _, list := range [][]entry{m.tests, m.packages} {
		slices.SortFunc(list, func(a, b entry) int {
			return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Folder, b.Folder))
		})
	}
	return m, lines.Err()
}

// table prints each package, the slowest first, and the ten slowest tests.
func (m measurement) table(w io.Writer, promises []guarantee) {
	fmt.Fprintf(w, "%9s %10s  %-32s %s\n", "seconds", "processor", "package",
		"guards these lines of docs/guarantees.md")
	var all entry
	for _, p := range m.packages {
		all.Seconds, all.CPU = all.Seconds+p.Seconds, all.CPU+p.CPU
		var lines []string
		for _, g := range promises {
			if slices.ContainsFunc(m.tests, func(e entry) bool { return e.Folder == p.Folder && e.guards(g) }) {
				lines = append(lines, strconv.Itoa(g.line))
			}
		}
		fmt.Fprintf(w, "%9.1f %10.1f  %-32s %s\n", p.Seconds, p.CPU, p.Folder, strings.Join(lines, " "))
	}
	fmt.Fprintf(w, "%9.1f %10.1f  all %d packages\n", all.Seconds, all.CPU, len(m.packages))
	fmt.Fprintf(w, "%9s %10s  slowest tests\n", "seconds", "")
	for _, e := range m.tests[:min(10, len(m.tests))] {
		fmt.Fprintf(w, "%9.1f %10s  %s %s\n", e.Seconds, "", e.Folder, e.Test)
	}
}

// guards says whether a test ran, passed, and would fail if a guarantee were broken. A guarantee
// names a test with its folder where other packages have one of the same name.
func (e entry) guards(g guarantee) bool {
	return e.Outcome == "pass" && (slices.Contains(g.tests, e.Test) || slices.Contains(g.tests, e.Folder+"."+e.Test))
}

// guarded fails for each guarantee of which no test passed: all were skipped, moved to
// another lane, or never ran.
func (m measurement) guarded(promises []guarantee) error {
	var open []string
	for _, g := range promises {
		if !slices.ContainsFunc(m.tests, func(e entry) bool { return e.guards(g) }) {
			open = append(open, fmt.Sprintf("docs/guarantees.md:%d: none of %s passed here: %s", g.line,
				strings.Join(g.tests, ", "), g.promise))
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("each guarantee needs a test in .ci/run:\n%s", strings.Join(open, "\n"))
	}
	return nil
}
