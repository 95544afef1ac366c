package grade

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestParsers(t *testing.T) {
	for name, c := range map[string]struct{ parser, log, want string }{
		"pytest -rA": {"pytest", `
=========================== short test summary info ============================
PASSED tests/test_a.py::test_one
PASSED tests/test_a.py::TestB::test_two[a b]
XFAIL tests/test_a.py::test_x - reason
XPASS tests/test_a.py::test_y
SKIPPED [1] tests/test_a.py:12: no network
FAILED tests/test_a.py::test_three - AssertionError: assert 1 == 2
ERROR tests/test_b.py - ImportError: No module named 'x'
 PASSED tests/indented.py::no
= 1 failed in 0.1s =`, "tests/test_a.py::TestB::test_two[a PASSED, tests/test_a.py::test_one PASSED, tests/test_a.py::test_three FAILED, tests/test_a.py::test_x XFAIL, tests/test_a.py::test_y PASSED, tests/test_b.py ERROR"},
		"pytest -v": {"pytest", "tests/test_a.py::test_one \x1b[32mPASSED\x1b[0m [ 50%]\r\ntests/test_a.py::test_two SKIPPED (no network) [100%]\nall tests PASSED\n",
			"tests/test_a.py::test_one PASSED, tests/test_a.py::test_two SKIPPED"},
		"the worse counts": {"pytest", "PASSED a.py::x\nERROR a.py::x - teardown\nPASSED a.py::x\n", "a.py::x ERROR"},
		"go test -v": {"gotest", `=== RUN   TestA
--- PASS: TestA (0.00s)
=== RUN   TestB
    b_test.go:9: --- PASS: TestFake (0.00s)
    --- FAIL: TestB/sub_case (0.01s)
--- FAIL: TestB (0.01s)
--- SKIP: TestC (0.00s)
FAIL
FAIL	example.com/m	0.012s`, "TestA PASSED, TestB FAILED, TestB/sub_case FAILED, TestC SKIPPED"},
		"unittest": {"unittest", `test_add (test_m.TestM.test_add) ... ok
test_sub (test_m.TestM.test_sub) ... FAIL
test_mul (test_m.TestM.test_mul)
It multiplies ... ok
test_div (test_m.TestM.test_div) ... skipped 'no'
test_old (test_m.TestM) ... expected failure
test_odd (test_m.TestM) ... unexpected success
ERROR: setUpClass (test_m.TestN)
FAIL: test_sub (test_m.TestM.test_sub)`, "setUpClass (test_m.TestN) ERROR, test_add (test_m.TestM.test_add) PASSED, test_div (test_m.TestM.test_div) SKIPPED, test_odd (test_m.TestM) FAILED, test_old (test_m.TestM) XFAIL, test_sub (test_m.TestM.test_sub) FAILED"},
	} {
		if got := spelled(parsers[c.parser].parse(c.log)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func spelled(results Results) string {
	var all []string
	for name, status := range results {
		all = append(all, name+" "+string(status))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// marked puts a log between its marks.
func marked(output string, exit int) string {
	return fmt.Sprintf("+ set up\n%s\n%s\n%s\n%s%d\n", StartMark, output, EndMark, ExitMark, exit)
}

func TestGrade(t *testing.T) {
	const summary = "\n======= 3 passed, 1 skipped in 0.12s ======="
	g := Grading{Parser: "pytest", FailToPass: []string{"t.py::fix"}, PassToPass: []string{"t.py::a", "t.py::b"}}
	all := "PASSED t.py::fix\nPASSED t.py::a\nPASSED t.py::b"
	for name, c := range map[string]struct {
		log     string
		reward  float64
		fixed   float64
		kept    float64
		failure error
	}{
		"resolved":                          {marked(all+summary, 0), 1, 1, 1, nil},
		"another test fails as before":      {marked(all+"\nFAILED t.py::old - x"+summary, 1), 1, 1, 1, nil},
		"expected to fail":                  {marked("XFAIL t.py::fix\nXFAIL t.py::a\nPASSED t.py::b"+summary, 0), 1, 1, 1, nil},
		"not fixed":                         {marked("FAILED t.py::fix\nPASSED t.py::a\nPASSED t.py::b"+summary, 1), 0, 0, 1, nil},
		"a regression":                      {marked("PASSED t.py::fix\nERROR t.py::a\nPASSED t.py::b"+summary, 1), 0, 1, 0.5, nil},
		"the fix's test is skipped":         {marked("t.py::fix SKIPPED (x)\nPASSED t.py::a\nPASSED t.py::b"+summary, 0), 0, 0, 1, nil},
		"the fix's test is missing":         {marked("PASSED t.py::a\nPASSED t.py::b"+summary, 0), 0, 0, 1, nil},
		"another test is skipped":           {marked("PASSED t.py::fix\nPASSED t.py::a\nt.py::b SKIPPED"+summary, 0), 1, 1, 1, nil},
		"another test is missing":           {marked("PASSED t.py::fix\nPASSED t.py::a"+summary, 0), 0, 1, 0.5, nil},
		"a bad end without a failed test":   {marked(all+summary, 1), 0, 1, 1, nil},
		"PASSED beside FAILED":              {marked(all+"\nFAILED t.py::fix - x"+summary, 1), 0, 0, 1, nil},
		"no test ran":                       {marked("\n=== 4 deselected in 0.01s ===", 5), 0, 0, 0, nil},
		"nothing was written":               {marked("", 1), 0, 0, 0, ErrNoEvidence},
		"no summary":                        {marked(all, 0), 0, 0, 0, ErrNoEvidence},
		"nothing at all":                    {"", 0, 0, 0, ErrNoEvidence},
		"no exit code":                      {strings.Split(marked(all+summary, 0), ExitMark)[0], 0, 0, 0, ErrNoEvidence},
		"passed tests outside of the marks": {all + summary + marked("", 1), 0, 0, 0, ErrNoEvidence},
		"an end mark inside":                {marked(all+summary+"\n"+EndMark+"\n"+ExitMark+"0", 1), 0, 0, 0, ErrImitated},
		"an exit code inside":               {marked(all+summary+"\n"+ExitMark+"0", 1), 0, 0, 0, ErrImitated},
		"a whole log inside":                {marked(marked(all+summary, 0), 1), 0, 0, 0, ErrImitated},
		"an exit code behind":               {marked(all+summary, 1) + ExitMark + "0\n", 0, 0, 0, ErrImitated},
		"marks as traced commands":          {"+ : '" + StartMark + "'\n" + all + summary + "\n+ : '" + EndMark + "'\n" + ExitMark + "0\n", 1, 1, 1, nil},
	} {
		got, err := g.Grade([]byte(c.log))
		if !errors.Is(err, c.failure) || c.failure == nil && !maps.Equal(got, map[string]float64{"reward": c.reward, "fail_to_pass": c.fixed, "pass_to_pass": c.kept}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	failOnly := Grading{Parser: "unittest", FailToPass: []string{"a (m)"}, PassToPass: []string{"b (m)"}, FailOnly: true}
	for log, want := range map[string]float64{"Ran 2 tests in 0.1s": 1, "FAIL: b (m)\nRan 2 tests in 0.1s": 0, "ERROR: a (m)\nRan 2 tests in 0.1s": 0} {
		if got, err := failOnly.Grade([]byte(marked(log, 0))); err != nil || got["reward"] != want {
			t.Errorf("%q: %v, %v", log, got, err)
		}
	}
}

func TestRead(t *testing.T) {
	good := `{"parser": "parse_log_pytest_v2", "fail_to_pass": ["a"], "pass_to_pass": []}`
	if g, err := Read([]byte(good)); err != nil || g.Parser != "pytest" {
		t.Errorf("%+v, %v", g, err)
	}
	for _, bad := range []string{
		"", "[]", `{"parser": "jest", "fail_to_pass": ["a"]}`, `{"parser": "pytest"}`, `{"parser": "pytest", "fail_to_pass": [""]}`,
		`{"parser": "pytest", "fail_to_pass": ["a"], "pass": ["b"]}`, `{"parser": "pytest", "fail_to_pass": ["` + strings.Repeat("x", maxName+1) + `"]}`,
		`{"parser": "pytest", "fail_to_pass": [` + strings.Repeat(`"a",`, maxGraded) + `"a"]}`,
	} {
		if _, err := Read([]byte(bad)); err == nil {
			t.Errorf("%.80q is taken", bad)
		}
	}
}

// FuzzGrade: no log makes a grader fail otherwise than with its errors, nor gives a reward without the tests that it is for.
func FuzzGrade(f *testing.F) {
	f.Add(marked("PASSED t.py::fix\n= 1 passed in 0.1s =", 0), uint8(0))
	f.Add(marked("--- PASS: fix (0.00s)\nok  	m	0.1s", 0), uint8(1))
	f.Add(marked("fix (m) ... ok\nRan 1 test in 0.1s", 0), uint8(2))
	names := []string{"pytest", "gotest", "unittest"}
	f.Fuzz(func(t *testing.T, log string, which uint8) {
		g := Grading{Parser: names[int(which)%len(names)], FailToPass: []string{"t.py::fix", "fix", "fix (m)"}[int(which)%3 : int(which)%3+1]}
		components, err := g.Grade([]byte(log))
		if err != nil {
			if !errors.Is(err, ErrNoEvidence) && !errors.Is(err, ErrImitated) {
				t.Error(err)
			}
			return
		}
		if components["reward"] == 1 && (!strings.Contains(log, "fix") || !strings.Contains(log, EndMark)) {
			t.Errorf("a reward of %q", log)
		}
		for name, status := range parsers[g.Parser].parse(log) {
			if name == "" || len(name) > maxName || badness[status] == 0 {
				t.Errorf("%q is %q", name, status)
			}
		}
	})
}
