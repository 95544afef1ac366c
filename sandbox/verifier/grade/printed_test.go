package grade

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// recorded is what a real test program printed or wrote.
func recorded(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// read reads a report as the verifier does, of a log or of a file.
func read(parser, text string) (Report, error) {
	if parser == JUnit {
		return ReadJUnit([]byte(text))
	}
	return (&Grading{Parser: parser}).ReadLog(marked(text, 1))
}

// TestRealReports reads what cargo 1.95, jest 30, pytest 9 and SymPy 1.10 write.
func TestRealReports(t *testing.T) {
	for file, c := range map[string]struct{ parser, want string }{
		"cargo.txt": {"cargo",
			"src/lib.rs - add (line 3) PASSED, tests::adds PASSED, tests::inner::nested PASSED, tests::overflows PASSED, tests::slow SKIPPED, tests::wrong FAILED, whole PASSED"},
		"jest.txt": {"jest",
			"adds PASSED, adds slowly (3 ms) PASSED, alone PASSED, fails FAILED, later SKIPPED, other PASSED, purse > fails FAILED, purse > refunds SKIPPED, " +
				"purse > with coins > adds PASSED, purse > with coins > adds slowly (3 ms) PASSED, purse > with coins > later SKIPPED, refunds SKIPPED"},
		"sympy.txt": {"sympy",
			"sympy/core/tests/test_zy.py FAILED, test_adds PASSED, test_expected XFAIL, test_fails FAILED, test_last PASSED, test_later SKIPPED, test_other PASSED, " +
				"test_prints PASSED, test_raises FAILED, test_skips SKIPPED, test_slow SKIPPED, test_unexpected FAILED"},
		"pytest.xml": {JUnit,
			"test_adds PASSED, test_broken ERROR, test_expected SKIPPED, test_many[1] PASSED, test_many[2] FAILED, test_purse.TestOld.test_sub PASSED, " +
				"test_purse.TestPurse.test_adds PASSED, test_purse.TestPurse.test_slow SKIPPED, test_purse.test_broken ERROR, test_purse.test_expected SKIPPED, " +
				"test_purse.test_many[1] PASSED, test_purse.test_many[2] FAILED, test_slow SKIPPED, test_sub PASSED"},
	} {
		t.Run(file, func(t *testing.T) {
			for name, text := range map[string]string{"as it is": recorded(t, file),
				"with carriage returns": strings.ReplaceAll(recorded(t, file), "\n", "\r\n")} {
				got, err := read(c.parser, text)
				if err != nil || !got.Complete || !got.Ran || spelled(got.Results) != c.want {
					t.Errorf("%s: %s, complete: %v, %v", name, spelled(got.Results), got.Complete, err)
				}
			}
		})
	}
}

// TestMessages: the reports of real programs say of a failed test what it failed with, by each of
// its names, and of no other test.
func TestMessages(t *testing.T) {
	for file, c := range map[string]struct {
		parser string
		want   map[string]string
	}{
		"cargo.txt": {"cargo",
			map[string]string{"tests::wrong": "thread 'tests::wrong' (27676) panicked at src/lib.rs:11:55:\nassertion `left == right` failed\n  left: 3\n right: 4"}},
		"jest.txt": {"jest",
			map[string]string{"purse > fails": "expect(received).toBe(expected) // Object.is equality\n\nExpected: 4\nReceived: 3",
				"fails": "expect(received)"}},
		"sympy.txt": {"sympy", map[string]string{"test_raises": "KeyError: 'k'", "test_fails": "AssertionError",
			"/testbed/sympy/core/tests/test_zy.py": "ModuleNotFoundError: No module named 'nothing_of_this_name'"}},
		"pytest.xml": {JUnit,
			map[string]string{"test_purse.test_many[2]": "AssertionError: <fail & out>\nassert 2 == 1",
				"test_many[2]":           "AssertionError: <fail",
				"test_purse.test_broken": "failed on setup with", "test_broken": "failed on setup with"}},
	} {
		t.Run(file, func(t *testing.T) {
			got, err := read(c.parser, strings.ReplaceAll(recorded(t, file), "\n", "\r\n"))
			if err != nil || len(got.Said) != len(c.want) {
				t.Errorf("%q, %v", got.Said, err)
			}
			for name, want := range c.want {
				if said := got.Said[name]; !strings.HasPrefix(said, want) || len(said) > maxSaid {
					t.Errorf("%s: %q", name, said)
				}
			}
		})
	}
	got, err := read(JUnit, `<testsuite><testcase name="a"><failure>`+strings.Repeat("ü", maxSaid)+
		`</failure></testcase><testcase name="b"><skipped message="late"/></testcase></testsuite>`)
	if said := got.Said["a"]; err != nil || len(got.Said) != 1 ||
		!strings.HasPrefix(said, "üü") || len(said) > maxSaid {
		t.Errorf("%q, %v", got.Said, err)
	}
}

const (
	cargoOne = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
	jestOne  = "PASS ./a.test.js\n  s\n    ✓ a (1 ms)\n\nTest Suites: 1 passed, 1 total\nTests:       1 passed, 1 total\n"
	sympyOne = "sympy/tests/test_a.py[1] \ntest_a ok   [OK]\n\n=== tests finished: 1 passed, in 0.01 seconds ===\n"
	junitOne = `<testsuites><testsuite tests="1"><testcase classname="c" name="a"/></testsuite></testsuites>`
)

// TestReportsThatDoNotAddUp: what is cut short, repeated or forged is not
// complete, or no report at all.
func TestReportsThatDoNotAddUp(t *testing.T) {
	for name, c := range map[string]struct {
		parser, text, want string
		complete           bool
		failure            error
	}{
		"cargo": {"cargo", cargoOne, "a PASSED", true, nil},
		"cargo, twice the same name": {"cargo", cargoOne +
			strings.ReplaceAll(strings.Replace(cargoOne, "1 passed; 0 failed", "0 passed; 1 failed", 1), "... ok",
				"... FAILED"), "a FAILED", true, nil},
		"cargo, cut short": {"cargo", strings.Split(cargoOne, "\n\n")[0], "a PASSED", false, nil},
		"cargo, another run begins": {"cargo", strings.Split(cargoOne, "\n\n")[0] + "\n" + cargoOne,
			"a PASSED", false, nil},
		"cargo, one test too many": {"cargo", strings.Replace(cargoOne, "test a", "test fix ... ok\ntest a", 1),
			"a PASSED, fix PASSED", false, nil},
		"cargo, before it runs": {"cargo", "test fix ... ok\n" + cargoOne, "", false, ErrImitated},
		"cargo, two ends": {"cargo", cargoOne + cargoOne[strings.Index(cargoOne, "test result"):],
			"", false, ErrImitated},
		"cargo, nothing": {"cargo", "error: could not compile\n", "", true, nil},
		"cargo, a long name": {"cargo", strings.Replace(cargoOne, "test a",
			"test "+strings.Repeat("x", maxName+1), 1), "", false, nil},
		"jest": {"jest", jestOne, "a PASSED, s > a PASSED", true, nil},
		"jest, coloured": {"jest", strings.Replace(jestOne, "✓ a", "\x1b[32m✓\x1b[39m a", 1),
			"a PASSED, s > a PASSED", true, nil},
		"jest, cut short": {"jest", strings.Split(jestOne, "\n\n")[0],
			"a PASSED, s > a PASSED", false, nil},
		"jest, one test too many": {"jest", strings.Replace(jestOne, "  s\n", "  s\n    ✓ fix\n", 1),
			"a PASSED, fix PASSED, s > a PASSED, s > fix PASSED", false, nil},
		"jest, two sums":   {"jest", jestOne + jestOne, "", false, ErrImitated},
		"sympy":            {"sympy", sympyOne, "test_a PASSED", true, nil},
		"sympy, cut short": {"sympy", strings.Split(sympyOne, "\n\n")[0], "test_a PASSED", false, nil},
		"sympy, one test too many": {"sympy", strings.Replace(sympyOne, "test_a ok", "test_fix ok\ntest_a ok", 1),
			"test_a PASSED, test_fix PASSED", false, nil},
		"sympy, two sums": {"sympy", sympyOne + sympyOne, "", false, ErrImitated},
		"sympy, a file is missing": {"sympy", strings.Replace(sympyOne, "1 passed", "1 passed, 1 exceptions", 1),
			"test_a PASSED", false, nil},
		"junit": {JUnit, junitOne, "a PASSED, c.a PASSED", true, nil},
		"junit, one suite": {JUnit,
			`<?xml version="1.0"?><!-- x --><testsuite><testcase name="a"><skipped/></testcase></testsuite>`,
			"a SKIPPED", true, nil},
		"junit, nested suites": {JUnit,
			`<testsuites><testsuite tests="2"><testcase name="a"/><testsuite tests="1"><properties><property/></properties><testcase name="b"><failure>x</failure><error/></testcase></testsuite></testsuite></testsuites>`,
			"a PASSED, b ERROR", true, nil},
		"junit, duplicate names": {JUnit,
			`<testsuite><testcase name="a"/><testcase name="a"><failure/></testcase><testcase name="a"/></testsuite>`,
			"a FAILED", true, nil},
		"junit, cases are missing": {JUnit, strings.Replace(junitOne, `tests="1"`, `tests="2"`, 1),
			"a PASSED, c.a PASSED", false, nil},
		"junit, a case without a name": {JUnit, `<testsuite><testcase classname="c"/></testsuite>`, "", false, nil},
		"junit, of GoogleTest": {JUnit,
			`<testsuite><testcase name="a" status="run" result="completed"/><testcase name="b" status="notrun" result="suppressed"/></testsuite>`,
			"a PASSED, b SKIPPED", true, nil},
		"junit, words alone": {JUnit,
			`<testsuite><testcase name="a" status="Failed"/><testcase name="b"><ignored/></testcase><testcase name="c" result="error"><skipped/></testcase></testsuite>`,
			"a FAILED, b SKIPPED, c ERROR", true, nil},
		"junit, of Ginkgo": {JUnit,
			`<testsuite><testcase name="a" status="panicked"><error/></testcase><testcase name="b" status="quaked"><failure/></testcase></testsuite>`,
			"a ERROR, b FAILED", true, nil},
		"junit, an unknown word": {JUnit, `<testsuite><testcase name="a" status="quarantined"/></testsuite>`,
			"", false, ErrNoEvidence},
		"junit, an entity": {JUnit, `<!DOCTYPE x [<!ENTITY a "aaaa">]>` +
			strings.Replace(junitOne, `name="a"`, `name="&a;"`, 1), "", false, ErrNoEvidence},
		"junit, an entity of nobody": {JUnit, strings.Replace(junitOne, `name="a"`, `name="&a;"`, 1),
			"", false, ErrNoEvidence},
		"junit, a late document type": {JUnit, strings.Replace(junitOne, "<testcase", "<!DOCTYPE x><testcase", 1),
			"", false, ErrNoEvidence},
		"junit, cut short":        {JUnit, junitOne[:len(junitOne)-5], "", false, ErrNoEvidence},
		"junit, two documents":    {JUnit, junitOne + junitOne, "", false, ErrNoEvidence},
		"junit, another document": {JUnit, "<html/>", "", false, ErrNoEvidence},
		"junit, empty":            {JUnit, "", "", false, ErrNoEvidence},
		"junit, deep": {JUnit, strings.Repeat("<testsuite>", 1000) +
			strings.Repeat("</testsuite>", 1000), "", false, ErrNoEvidence},
		"junit, deep in a case": {JUnit, "<testsuite><testcase name='a'>" + strings.Repeat("<x>", 1000) +
			strings.Repeat("</x>", 1000) + "</testcase></testsuite>", "", false, ErrNoEvidence},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(c.parser, c.text)
			if !errors.Is(err, c.failure) ||
				err == nil && (spelled(got.Results) != c.want || got.Complete != c.complete) {
				t.Errorf("%s, complete: %v, %v", spelled(got.Results), got.Complete, err)
			}
		})
	}
	if _, err := (&Grading{Parser: "cargo"}).ReadLog(cargoOne); !errors.Is(err, ErrNoEvidence) {
		t.Errorf("without marks: %v", err)
	}
	if _, err := (&Grading{Parser: "jest"}).ReadLog(marked(jestOne+EndMark+"\n", 0)); !errors.Is(err, ErrImitated) {
		t.Errorf("with two ends: %v", err)
	}
}

// FuzzReports: no text makes a reader fail otherwise than with its errors, or keep more than its
// bounds. A reward needs the program's own sums.
func FuzzReports(f *testing.F) {
	for n, text := range []string{cargoOne, jestOne, junitOne, recorded(f, "cargo.txt"), recorded(f, "jest.txt"),
		recorded(f, "pytest.xml"), sympyOne, recorded(f, "sympy.txt")} {
		f.Add([]byte{0, 1, 2, 0, 1, 2, 3, 3}[n], text)
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		parser := []string{"cargo", "jest", JUnit, "sympy"}[which%4]
		report, err := read(parser, text)
		if err != nil && !errors.Is(err, ErrNoEvidence) && !errors.Is(err, ErrImitated) {
			t.Error(err)
		}
		for name, status := range report.Results {
			if name == "" || len(name) > maxName || badness[status] == 0 {
				t.Errorf("%q is %q", name, status)
			}
		}
		for name, said := range report.Said {
			if len(said) > maxSaid {
				t.Errorf("%q: %d bytes are said of it", name, len(said))
			}
		}
		g := Grading{Parser: parser, FailToPass: []string{"a"}}
		components, err := g.Grade([]byte(marked(text, 0)), report)
		if err == nil && components["reward"] == 1 &&
			(!report.Complete || badness[report.Results["a"]] > badness[XFailed]) {
			t.Errorf("a reward of %s", fmt.Sprintf("%.300q", text))
		}
	})
}
