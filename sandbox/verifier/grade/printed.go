package grade

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// printed are the test programs that report in what they print, by how that is read. Nothing
// tells their lines from such that the code under test prints, but that they add up to what the
// program says at its end.
var printed = map[string]func(output string) (Report, error){"cargo": readCargo, "jest": readJest, "sympy": readSymPy}

// Printed reports whether the report is in the log, and not on a channel of its own.
func (g *Grading) Printed() bool { return printed[g.Parser] != nil }

// Channelled reports whether the report comes over a channel, which none but processes
// of the test program have.
func (g *Grading) Channelled() bool { return !g.Printed() && g.Parser != JUnit }

// ReadLog reads the report of a test program that prints it, from between the marks of a log.
func (g *Grading) ReadLog(log string) (Report, error) {
	starts, ends := marks(log, StartMark), marks(log, EndMark)
	if len(starts) != 1 || len(ends) != 1 || ends[0] < starts[0] {
		_, err := exitCode(log)
		return Report{}, err
	}
	return printed[g.Parser](escapes.ReplaceAllString(log[starts[0]:ends[0]], ""))
}

// escapes are the sequences that colour a terminal.
var escapes = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// counts are how many tests ended in each way.
type counts map[Status]int

// note adds a test to the results, unless its name is too long, which leaves the counts at odds.
func (c counts) note(results Results, status Status, names ...string) {
	for _, name := range names {
		if name == "" || len(name) > maxName {
			return
		}
		results.add(name, status)
	}
	c[status]++
}

// equal: the same counts were told. What was not told counts as none.
func (c counts) equal(told counts) bool {
	return c[Passed] == told[Passed] && c[Failed] == told[Failed] && c[Skipped] == told[Skipped]
}

var (
	cargoStart = regexp.MustCompile(`^running \d+ tests?$`)
	cargoTest  = regexp.MustCompile(`^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored|bench:)(?:[ ,].*)?$`)
	cargoSaid  = regexp.MustCompile(`^---- (.+) stdout ----$`)
	cargoPanic = regexp.MustCompile(`^thread '.*' .*panicked at `)
	cargoEnd   = regexp.MustCompile(`^test result: (?:ok|FAILED)\. (\d{1,6}) passed; (\d{1,6}) failed; (\d{1,6}) ignored; (\d{1,6}) measured; `)
)

var cargoStatus = map[string]Status{"ok": Passed, "bench:": Passed, "FAILED": Failed, "ignored": Skipped}

// readCargo reads what the programs of cargo test print, one after the other.
func readCargo(output string) (Report, error) {
	report := Report{Results: Results{}, Complete: true}
	open, listing, seen := false, false, counts{}
	var about speech
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if cargoStart.MatchString(line) {
			report.Complete = report.Complete && !open
			open, listing, seen = true, false, counts{}
		} else if line == "failures:" {
			listing = true // what failed tests printed comes next
			about.end(&report)
		} else if m := cargoSaid.FindStringSubmatch(line); listing && m != nil {
			about.begin(&report, m[1])
		} else if listing && !cargoEnd.MatchString(line) {
			if cargoPanic.MatchString(line) {
				about.text.Reset() // what the test printed before it failed
			} else if line == "stack backtrace:" {
				about.end(&report)
			}
			about.add(line)
		} else if m := cargoTest.FindStringSubmatch(line); m != nil {
			if !open {
				return Report{}, fmt.Errorf("%w: %.100q stands outside of a run", ErrImitated, line)
			}
			seen.note(report.Results, cargoStatus[m[2]], m[1])
		} else if m := cargoEnd.FindStringSubmatch(line); m != nil {
			if !open {
				return Report{}, fmt.Errorf("%w: %.100q stands outside of a run", ErrImitated, line)
			}
			told := counts{Passed: number(m[1]) + number(m[4]), Failed: number(m[2]), Skipped: number(m[3])}
			report.Complete = report.Complete && seen.equal(told)
			report.Ran = report.Ran || told[Passed]+told[Failed]+told[Skipped] > 0
			open, listing = false, false
			about.end(&report)
		}
	}
	report.Complete = report.Complete && !open
	return report, nil
}

// speech gathers what a program says of a test, line by line.
type speech struct {
	names []string
	text  strings.Builder
}

// begin ends what was said before, and begins what is said of a test that has these names.
func (s *speech) begin(r *Report, names ...string) {
	s.end(r)
	s.names = names
}

func (s *speech) add(line string) {
	if s.names != nil && s.text.Len() < maxSaid {
		s.text.WriteString(line + "\n")
	}
}

func (s *speech) end(r *Report) {
	r.say(s.text.String(), s.names...)
	s.names = nil
	s.text.Reset()
}

// number is the value of a few digits.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

var (
	jestFile  = regexp.MustCompile(`^ ?(?:PASS|FAIL)  ?\S`)
	jestTest  = regexp.MustCompile(`^( +)([✓✔√✕✖×○✎]) (.+?)(?: \(\d+(?:\.\d+)? m?s\))?$`)
	jestSuite = regexp.MustCompile(`^( +)(\S.*)$`)
	jestSaid  = regexp.MustCompile(`^  ● (.+)$`)
	jestEnd   = regexp.MustCompile(`^Tests: +(.+), \d+ total$`)
	jestCount = regexp.MustCompile(`^(\d{1,6}) (passed|failed|skipped|todo)$`)
)

var jestStatus = map[string]Status{
	"✓": Passed, "✔": Passed, "√": Passed, "✕": Failed, "✖": Failed, "×": Failed, "○": Skipped, "✎": Skipped,
	"passed": Passed, "failed": Failed, "skipped": Skipped, "todo": Skipped,
}

// readJest reads what jest --verbose prints. A test has its title as its name, as in the lists of
// SWE-bench, and with the titles of the suites around it: "suite > title".
func readJest(output string) (Report, error) {
	report := Report{Results: Results{}}
	seen, ended, open := counts{}, 0, false
	var around suites
	var about speech
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if m := jestSaid.FindStringSubmatch(line); m != nil {
			titles := strings.Split(m[1], " › ")
			about.begin(&report, strings.Join(titles, " > "), titles[len(titles)-1])
		} else if line == "" || strings.HasPrefix(line, "    ") {
			about.add(strings.TrimPrefix(line, "    "))
		} else {
			about.end(&report)
		}
		if jestFile.MatchString(line) || line == "" {
			open, around = line != "", nil // a file's tests stand below its name, without an empty line
		} else if m := jestEnd.FindStringSubmatch(line); m != nil {
			ended++
			report.Complete = seen.equal(jestTold(m[1]))
		} else if !open {
			continue
		} else if m := jestTest.FindStringSubmatch(line); m != nil {
			title := strings.TrimPrefix(strings.TrimPrefix(m[3], "skipped "), "todo ")
			seen.note(report.Results, jestStatus[m[2]], title, around.name(len(m[1]), title))
		} else if m := jestSuite.FindStringSubmatch(line); m != nil {
			around = around.enter(len(m[1]), m[2])
		}
	}
	if ended > 1 {
		return Report{}, fmt.Errorf("%w: the tests are summed up %d times", ErrImitated, ended)
	}
	report.Ran = len(report.Results) > 0
	return report, nil
}

func jestTold(list string) counts {
	told := counts{}
	for part := range strings.SplitSeq(list, ", ") {
		if m := jestCount.FindStringSubmatch(part); m != nil {
			told[jestStatus[m[2]]] += number(m[1])
		}
	}
	return told
}

// suites are the titles around a line, each with how far it is indented.
type suites []struct {
	indent int
	title  string
}

// maxSuites bounds how deep suites are nested.
const maxSuites = 64

// enter is what is around the lines after a suite's title.
func (s suites) enter(indent int, title string) suites {
	for len(s) > 0 && s[len(s)-1].indent >= indent {
		s = s[:len(s)-1]
	}
	if len(s) >= maxSuites || len(title) > maxName {
		return s
	}
	return append(s, struct {
		indent int
		title  string
	}{indent, title})
}

// name is a test's title behind those around it.
func (s suites) name(indent int, title string) string {
	var parts []string
	for _, suite := range s {
		if suite.indent < indent {
			parts = append(parts, suite.title)
		}
	}
	return strings.Join(append(parts, title), " > ")
}
