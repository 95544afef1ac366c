package verifier_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// TestPrintedReports: what a test program really printed or wrote is graded between the marks of a
// script, and one that is cut short is tampering.
func TestPrintedReports(t *testing.T) {
	sandboxtest.Require(t)
	const begin, end = "echo '" + grade.StartMark + "'\n",
		"\necho\necho '" + grade.EndMark + "'\necho '" + grade.ExitMark + "'"
	for name, c := range map[string]struct {
		parser, file, script, code, passed, failed string
	}{
		"cargo": {"cargo", "cargo.txt", "cat /tests/report", "101", "tests::inner::nested", "tests::wrong"},
		"sympy": {"sympy", "sympy.txt", "cat /tests/report", "1", "test_adds", "test_fails"},
		"jest":  {"jest", "jest.txt", "cat /tests/report >&2", "1", "purse > with coins > adds", "purse > fails"},
		"junit": {grade.JUnit, "pytest.xml", "cp /tests/report " + verifier.LogsFolder + "/" + grade.JUnitFile, "1",
			"test_purse.TestOld.test_sub", "test_broken"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := os.ReadFile("grade/testdata/" + c.file)
			if err != nil {
				t.Fatal(err)
			}
			score := func(wanted, script, code string) (verifier.Outcome, error) {
				grading, err := json.Marshal(grade.Grading{Parser: c.parser, FailToPass: []string{wanted}})
				if err != nil {
					t.Fatal(err)
				}
				return verifier.Run(t.Context(), verifier.Spec{
					Name: "reports", Snapshot: sandbox.Bytes(sandboxtest.Pack(t, map[string]string{"file": "x"})),
					Tests: sandboxtest.Pack(t, map[string]string{"test.sh": begin + script + end + code + "\n",
						grade.File: string(grading), "report": string(report)}),
				})
			}
			for wanted, reward := range map[string]float64{c.passed: 1, c.failed: 0, "nobody": 0} {
				got, err := score(wanted, c.script, c.code)
				if err != nil || got.Reward != reward || got.Components["fail_to_pass"] != reward {
					t.Errorf("%s: %+v, %v", wanted, got, err)
				}
				if named := strings.Contains(string(got.Log),
					"1 of the 1 graded tests are not in the report of "+c.parser+
						": nobody\n"); named != (wanted == "nobody") {
					t.Errorf("%s: the log names it as missing: %v: %s", wanted, named, got.Log)
				}
			}
			var failure *verifier.Error
			if _, err := score(c.passed, "head -c 200 /tests/report; echo", "0"); !errors.As(err, &failure) ||
				failure.Class != verifier.ClassTampered && failure.Class != verifier.ClassNoReward {
				t.Errorf("cut short: %v", err)
			}
			if name != "junit" {
				return
			}
			const behind = "(setsid sh -c 'while :; do cp /tests/report /tmp/next; mv /tmp/next /logs/verifier/junit.xml; sleep 0.01; done' >/dev/null 2>&1 &); while [ ! -e /logs/verifier/junit.xml ]; do sleep 0.01; done"
			for why, script := range map[string]string{"by what is left behind": behind,
				"with a second name": c.script + "; ln /logs/verifier/junit.xml /logs/verifier/other"} {
				if got, err := score(c.passed, script, "0"); !errors.As(err, &failure) ||
					failure.Class != verifier.ClassTampered {
					t.Errorf("written %s: %+v, %v", why, got, err)
				}
			}
		})
	}
}
