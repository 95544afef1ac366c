package grade

import (
	"regexp"
	"strings"
)

// Status is how a test ended.
type Status string

// The statuses, from good to bad.
const (
	Passed  Status = "PASSED"
	XFailed Status = "XFAIL" // it failed as it was expected to
	Skipped Status = "SKIPPED"
	Failed  Status = "FAILED"
	Errored Status = "ERROR"
)

var badness = map[Status]int{Passed: 1, XFailed: 2, Skipped: 3, Failed: 4, Errored: 5}

// Results are the tests that a log tells of.
type Results map[string]Status

// Bounds of what is taken of a log.
const (
	maxTests = 200_000
	maxName  = 2000 // bytes
)

// add notes a status. Of two on one test the worse counts: a test's teardown may fail, and what the code under test prints may look like a
// passed test.
func (r Results) add(name string, status Status) {
	if name == "" || len(name) > maxName || badness[status] <= badness[r[name]] || len(r) >= maxTests && r[name] == "" {
		return
	}
	r[name] = status
}

// failures tells whether any test failed.
func (r Results) failures() bool {
	for _, status := range r {
		if status == Failed || status == Errored {
			return true
		}
	}
	return false
}

// parser reads the log of one test program. ran matches the line with which it says that the tests ran to their end.
type parser struct {
	line func(line string, into Results)
	ran  *regexp.Regexp
}

// parsers by name; names are those of SWE-bench, too.
var parsers = map[string]parser{
	"pytest":   {pytestLine, regexp.MustCompile(`(?m)^=+ .*\b\d+ (passed|failed|skipped|xfailed|xpassed|errors?|deselected|warnings?)\b.* in [0-9.]+s.* =+$|^\d+ (passed|failed|skipped|errors?)\b.* in [0-9.]+s`)},
	"gotest":   {goLine, regexp.MustCompile(`(?m)^(ok|FAIL|\?)\s+\S+.*$|^(PASS|FAIL)$`)},
	"unittest": {unittestLine, regexp.MustCompile(`(?m)^Ran \d+ tests? in [0-9.]+s$`)},
}

var aliases = map[string]string{
	"parse_log_pytest": "pytest", "parse_log_pytest_v2": "pytest", "parse_log_pytest_options": "pytest", "pytest_v2": "pytest",
	"parse_log_gotest": "gotest", "go": "gotest", "parse_log_django": "unittest", "django": "unittest", "parse_log_unittest": "unittest",
}

var colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// parse reads a log.
func (p parser) parse(log string) Results {
	found := Results{}
	for line := range strings.Lines(colours.ReplaceAllString(log, "")) {
		p.line(strings.TrimRight(line, "\r\n"), found)
	}
	return found
}

var pytestStatus = map[string]Status{"PASSED": Passed, "FAILED": Failed, "ERROR": Errored, "SKIPPED": Skipped, "XFAIL": XFailed, "XPASS": Passed}

// pytestLine reads "PASSED tests/a.py::test" of the summary of -rA, and "tests/a.py::test PASSED [ 50%]" of -v. A name ends at its first space, as
// in SWE-bench's lists.
func pytestLine(line string, into Results) {
	fields := strings.Fields(line)
	if len(fields) < 2 || line[0] == ' ' {
		return
	}
	if status, ok := pytestStatus[fields[0]]; ok && !strings.HasPrefix(fields[1], "[") {
		into.add(fields[1], status)
		return
	}
	if status, ok := pytestStatus[fields[1]]; ok && strings.Contains(fields[0], "::") {
		into.add(fields[0], status)
	}
}

var (
	goTest   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \([0-9.]+s\)$`)
	goStatus = map[string]Status{"PASS": Passed, "FAIL": Failed, "SKIP": Skipped}
)

// goLine reads "--- PASS: TestName (0.00s)" of go test -v, and of subtests.
func goLine(line string, into Results) {
	if m := goTest.FindStringSubmatch(line); m != nil {
		into.add(m[2], goStatus[m[1]])
	}
}

var unittest = regexp.MustCompile(`^(\S+ \(\S+\)).* \.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$`)

// unittestLine reads "test_name (module.Class) ... ok" of -v, and "FAIL: test_name (module.Class)" of what failed.
func unittestLine(line string, into Results) {
	if name, ok := strings.CutPrefix(line, "FAIL: "); ok && strings.HasSuffix(name, ")") {
		into.add(name, Failed)
	} else if name, ok := strings.CutPrefix(line, "ERROR: "); ok && strings.HasSuffix(name, ")") {
		into.add(name, Errored)
	}
	m := unittest.FindStringSubmatch(line)
	if m == nil {
		return
	}
	status := map[string]Status{"ok": Passed, "FAIL": Failed, "ERROR": Errored, "expected failure": XFailed, "unexpected success": Failed}[m[2]]
	if status == "" {
		status = Skipped
	}
	into.add(m[1], status)
}
