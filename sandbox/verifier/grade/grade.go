// Package grade grades a repository's own tests, as SWE-bench does: the tests that a fix must make
// pass, and those that must go on passing. It runs outside of the sandbox, over what the test
// program reported and the log of the script that ran it.
package grade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/wording"
)

// File is the name of a grading in a task's tests. Where it is there, it gives the reward, and no
// file that the tests write.
const File = "grading.json"

// Grading says which tests must pass.
type Grading struct {
	// Parser is the test program whose report it is: pytest, gotest, unittest, cargo, jest or
	// sympy, or SWE-bench's name of one of these, junit for a file, or node for a program of node's
	// that has one of the verifier's reporters.
	Parser string `json:"parser"`
	// FailToPass fail before the fix and must pass. PassToPass must pass, too, but for those that
	// are skipped or expected to fail: see Unkept. A test that is skipped, or fails as it is
	// expected to, has not passed.
	FailToPass []string `json:"fail_to_pass"`
	PassToPass []string `json:"pass_to_pass"`
	// FailOnly is for test programs that name only what fails: what is not named has passed.
	FailOnly bool `json:"fail_only,omitempty"`
}

// Bounds of a grading.
const (
	MaxFile   = 16 << 20 // bytes
	maxGraded = 100_000  // tests of each list
)

// Read reads and checks a grading.
func Read(data []byte) (*Grading, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%d bytes, the limit is %d", len(data), MaxFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	g := &Grading{}
	if err := decoder.Decode(g); err != nil {
		return nil, wording.Plain(err)
	}
	if alias, ok := aliases[g.Parser]; ok {
		g.Parser = alias
	}
	if !programs[g.Parser] {
		return nil, fmt.Errorf("parser %.60q: there are only pytest, gotest, unittest, node, cargo, jest, sympy and junit", g.Parser)
	}
	if len(g.FailToPass) == 0 {
		return nil, errors.New("fail_to_pass: is empty: nothing would show that the fix is there")
	}
	if max(len(g.FailToPass), len(g.PassToPass)) > maxGraded {
		return nil, fmt.Errorf("more than %d tests in a list", maxGraded)
	}
	for _, name := range slices.Concat(g.FailToPass, g.PassToPass) {
		if name == "" || len(name) > maxName {
			return nil, fmt.Errorf("test %.60q: want a name of 1 to %d bytes", name, maxName)
		}
	}
	return g, nil
}

// Marks of a log, each on a line of its own, as SWE-bench's scripts write them.
const (
	StartMark = ">>>>> Start Test Output"
	EndMark   = ">>>>> End Test Output"
	ExitMark  = ">>>>> Test Exit Code: "
)

// programs are the test programs whose reports can be read.
var programs = map[string]bool{"pytest": true, "gotest": true, "unittest": true, "node": true, "cargo": true,
	"jest": true, "sympy": true, JUnit: true}

// aliases are SWE-bench's names of its parsers.
var aliases = map[string]string{
	"parse_log_pytest": "pytest", "parse_log_pytest_v2": "pytest",
	"parse_log_pytest_options": "pytest", "pytest_v2": "pytest",
	"parse_log_gotest": "gotest", "go": "gotest", "parse_log_django": "unittest", "django": "unittest",
	"parse_log_unittest": "unittest",
	"parse_log_cargo":    "cargo", "parse_log_jest": "jest", "parse_log_sympy": "sympy",
}

// Grade grades a report. Of the log it takes the test program's exit code, which the script wrote;
// what else the log says counts for nothing. Components are reward (1 where all of both lists hold,
// else 0), and the shares of both lists that do. Where nothing shows that the tests ran it is an
// error, never a 0; so are marks that stand more than once, and a process that ended with success
// before it was through. A test program that ended badly without any failed test did not tell
// everything, so that is no pass. Tests of Go that do not compile have failed.
func (g *Grading) Grade(log []byte, report Report) (map[string]float64, error) {
	exit, err := exitCode(string(log))
	if err != nil {
		return nil, err
	}
	if !report.Complete && exit == 0 {
		return nil, ErrEndedEarly
	}
	if report.Complete && !report.Ran && (exit == 0 || !g.uncompiled(log)) {
		return nil, fmt.Errorf("%w: %s reported none", ErrNoEvidence, g.Parser)
	}
	fixed, kept := 0, 0
	for _, name := range g.FailToPass {
		if g.status(report, name) == Passed {
			fixed++
		}
	}
	for _, name := range g.PassToPass {
		if status := g.status(report, name); status == Passed || status == XFailed || status == Skipped {
			kept++
		}
	}
	components := map[string]float64{"reward": 0, "fail_to_pass": share(fixed, len(g.FailToPass)),
		"pass_to_pass": share(kept, len(g.PassToPass))}
	if fixed == len(g.FailToPass) && kept == len(g.PassToPass) && report.Complete &&
		(exit == 0 || report.Results.failures()) {
		components["reward"] = 1
	}
	return components, nil
}

var (
	buildFailed  = regexp.MustCompile(`(?m)^FAIL\t\S+ \[build failed\]\r?$`)
	compileError = regexp.MustCompile(`(?m)^(?:vet: )?\S+\.go:\d+:\d+: `)
)

// uncompiled reports whether go test says that the compiler refused a line. A build that failed
// otherwise, as without the memory or the modules for it, is none of these. Code under test that
// prints the same only fails.
func (g *Grading) uncompiled(log []byte) bool {
	return g.Parser == "gotest" && !g.FailOnly && buildFailed.Match(log) && compileError.Match(log)
}

// Unkept are the tests of PassToPass that a report has as skipped or expected to fail, though the
// untouched workspace's results have them otherwise. Grade takes them for kept.
func (g *Grading) Unkept(report Report, untouched Results) (names []string) {
	for _, name := range g.PassToPass {
		if status := g.status(report, name); (status == Skipped || status == XFailed) && untouched[name] != Skipped &&
			untouched[name] != XFailed {
			names = append(names, name)
		}
	}
	return names
}

// states are the words for how a test ended that did not hold.
var states = map[Status]string{"": "missing", Failed: "failed", Errored: "error", Skipped: "skipped", XFailed: "xfail"}

// Tests say how the graded tests ended that a report gave a reward of. Unkept are tests of
// PassToPass that do not hold though Grade takes them for kept.
func (g *Grading) Tests(report Report, reward float64, unkept []string) *Tests {
	var unmet []UnmetTest
	add := func(name string, regression bool, fine ...Status) {
		if status := g.status(report, name); !slices.Contains(fine, status) {
			unmet = append(unmet, UnmetTest{Name: name, State: states[status], Regression: regression,
				Message: report.Said[name]})
		}
	}
	for _, name := range g.FailToPass {
		add(name, false, Passed)
	}
	dropped := make(map[string]bool, len(unkept))
	for _, name := range unkept {
		dropped[name] = true
	}
	for _, name := range g.PassToPass {
		if dropped[name] {
			add(name, true, Passed)
		} else {
			add(name, true, Passed, XFailed, Skipped)
		}
	}
	return newTests(len(g.FailToPass)+len(g.PassToPass), unmet, len(unmet) == 0 && reward == 0 || !report.Complete)
}

// PassedOf are the tests of names that a report has as passed.
func (g *Grading) PassedOf(report Report, names []string) (passed []string) {
	for _, name := range names {
		if g.status(report, name) == Passed {
			passed = append(passed, name)
		}
	}
	return passed
}

// Missing are the tests of both lists that a report does not name.
func (g *Grading) Missing(report Report) (names []string) {
	for _, name := range slices.Concat(g.FailToPass, g.PassToPass) {
		if g.status(report, name) == "" {
			names = append(names, name)
		}
	}
	return names
}

// status is how a test ended, "" where the report does not name it.
func (g *Grading) status(report Report, name string) Status {
	status := report.Results[name]
	if status == "" && g.FailOnly && report.Complete {
		return Passed
	}
	return status
}

func share(part, all int) float64 {
	if all == 0 {
		return 1
	}
	return float64(part) / float64(all)
}

var exitLine = regexp.MustCompile(`(?m)^` + ExitMark + `(-?\d{1,9})\s*$`)

// exitCode takes the tests' exit code from behind the marks around their output.
func exitCode(log string) (int, error) {
	starts, ends := marks(log, StartMark), marks(log, EndMark)
	switch {
	case len(starts) == 0 || len(ends) == 0:
		return 0, fmt.Errorf("%w: a mark is missing: %q or %q", ErrNoEvidence, StartMark, EndMark)
	case len(starts) > 1 || len(ends) > 1 || ends[0] < starts[0]:
		return 0, ErrImitated
	}
	codes := exitLine.FindAllStringSubmatch(log[ends[0]:], -1)
	switch {
	case exitLine.MatchString(log[starts[0]:ends[0]]) || len(codes) > 1:
		return 0, ErrImitated
	case len(codes) == 0:
		return 0, fmt.Errorf("%w: a mark is missing: %q", ErrNoEvidence, ExitMark)
	}
	return strconv.Atoi(codes[0][1])
}

// marks are where a mark stands as a line, or as what a shell that traces
// its commands writes of one.
func marks(log, mark string) (at []int) {
	from := 0
	for line := range strings.Lines(log) {
		text := strings.TrimSpace(line)
		text = strings.Trim(strings.TrimPrefix(strings.TrimLeft(text, "+ "), ": "), "'")
		if text == mark {
			at = append(at, from)
		}
		from += len(line)
	}
	return at
}
