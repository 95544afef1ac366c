package grade

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	one = "00000000000000000000000000000001"
	two = "00000000000000000000000000000002"
)

// reported are the lines of a process: {"begin"}, one for each of tests ("name STATUS"), the end of
// the run, and its own end.
func reported(nonce string, tests ...string) string {
	lines := nonce + ` {"begin": "python"}` + "\n"
	for _, test := range tests {
		cut := strings.LastIndexByte(test, ' ')
		lines += fmt.Sprintf("%s {\"test\": %q, \"status\": %q}\n", nonce, test[:cut], test[cut+1:])
	}
	return lines + fmt.Sprintf("%s {\"ran\": %d}\n%s {\"end\": true}\n", nonce, len(tests), nonce)
}

func TestReadReport(t *testing.T) {
	for name, c := range map[string]struct {
		report   string
		want     string
		complete bool
		failure  error
	}{
		"one process": {reported(one, "a PASSED", "b FAILED", "c XFAIL"),
			"a PASSED, b FAILED, c XFAIL", true, nil},
		"the worse counts": {reported(one, "a PASSED", "a ERROR", "a PASSED"), "a ERROR", true, nil},
		"two processes": {reported(one, "a PASSED") + reported(two, "b PASSED", "a FAILED"),
			"a FAILED, b PASSED", true, nil},
		"a name with spaces": {reported(one, "t.py::x[a b] PASSED", "test_x (m.T) PASSED"),
			"t.py::x[a PASSED, t.py::x[a b] PASSED, test_x (m.T) PASSED", true, nil},
		"nothing":                {"", "", true, nil},
		"a process without end":  {reported(one, "a PASSED") + two + ` {"begin": "x"}` + "\n", "a PASSED", false, nil},
		"cut short":              {strings.Split(reported(one, "a PASSED"), one+` {"end`)[0], "a PASSED", false, nil},
		"another nonce":          {reported("00000000000000000000000000000003", "a PASSED"), "", false, ErrImitated},
		"no nonce":               {`{"test": "a", "status": "PASSED"}` + "\n", "", false, ErrImitated},
		"records before a begin": {one + ` {"test": "a", "status": "PASSED"}` + "\n", "", false, ErrImitated},
		"records after the end": {reported(one) + one + ` {"test": "a", "status": "PASSED"}` + "\n",
			"", false, ErrImitated},
		"two begins":     {one + ` {"begin": "x"}` + "\n" + reported(one, "a PASSED"), "", false, ErrImitated},
		"another status": {reported(one, "a FINE"), "", false, ErrImitated},
		"a long name":    {reported(one, strings.Repeat("x", maxName+1)+" PASSED"), "", false, ErrImitated},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadReport([]byte(c.report), []string{one, two})
			if !errors.Is(err, c.failure) ||
				err == nil && (spelled(got.Results) != c.want || got.Complete != c.complete) {
				t.Errorf("%s, complete: %v, %v", spelled(got.Results), got.Complete, err)
			}
		})
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
	g := Grading{Parser: "pytest", FailToPass: []string{"t.py::fix"}, PassToPass: []string{"t.py::a", "t.py::b"}}
	all := []string{"t.py::fix PASSED", "t.py::a PASSED", "t.py::b PASSED"}
	early := strings.Split(reported(one, all...), one+` {"end`)[0]
	for name, c := range map[string]struct {
		log, report string
		reward      float64
		fixed       float64
		kept        float64
		failure     error
	}{
		"resolved": {marked("", 0), reported(one, all...), 1, 1, 1, nil},
		"another test fails as before": {marked("", 1), reported(one, append(all, "t.py::old FAILED")...), 1, 1, 1,
			nil},
		"expected to fail": {marked("", 0),
			reported(one, "t.py::fix XFAIL", "t.py::a XFAIL", "t.py::b PASSED"), 0, 0, 1, nil},
		"not fixed": {marked("", 1),
			reported(one, "t.py::fix FAILED", "t.py::a PASSED", "t.py::b PASSED"), 0, 0, 1, nil},
		"a regression": {marked("", 1),
			reported(one, "t.py::fix PASSED", "t.py::a ERROR", "t.py::b PASSED"), 0, 1, 0.5, nil},
		"the fix's test is skipped": {marked("", 0),
			reported(one, "t.py::fix SKIPPED", "t.py::a PASSED", "t.py::b PASSED"), 0, 0, 1, nil},
		"the fix's test is missing": {marked("", 0), reported(one, "t.py::a PASSED", "t.py::b PASSED"), 0, 0, 1,
			nil},
		"another test is skipped": {marked("", 0),
			reported(one, "t.py::fix PASSED", "t.py::a PASSED", "t.py::b SKIPPED"), 1, 1, 1, nil},
		"another test is missing": {marked("", 0), reported(one, "t.py::fix PASSED", "t.py::a PASSED"), 0, 1,
			0.5, nil},
		"a bad end without a failed test": {marked("", 1), reported(one, all...), 0, 1, 1, nil},
		"no report": {marked("PASSED t.py::fix\nPASSED t.py::a\n=== 3 passed in 0.1s ===", 0), "",
			0, 0, 0, ErrNoEvidence},
		"no test ran":                {marked("", 5), reported(one), 0, 0, 0, ErrNoEvidence},
		"an early end with success":  {marked("", 0), early, 0, 0, 0, ErrEndedEarly},
		"an early end with an error": {marked("", 1), early, 0, 1, 1, nil},
		"nothing at all":             {"", "", 0, 0, 0, ErrNoEvidence},
		"no exit code": {strings.Split(marked("", 0), ExitMark)[0], reported(one, all...),
			0, 0, 0, ErrNoEvidence},
		"an end mark inside": {marked("\n"+EndMark+"\n"+ExitMark+"0", 1),
			reported(one, all...), 0, 0, 0, ErrImitated},
		"an exit code inside": {marked("\n"+ExitMark+"0", 1), reported(one, all...), 0, 0, 0, ErrImitated},
		"a whole log inside":  {marked(marked("", 0), 1), reported(one, all...), 0, 0, 0, ErrImitated},
		"an exit code behind": {marked("", 1) + ExitMark + "0\n",
			reported(one, all...), 0, 0, 0, ErrImitated},
		"marks as traced commands": {"+ : '" + StartMark + "'\n\n+ : '" + EndMark + "'\n" + ExitMark + "0\n",
			reported(one, all...), 1, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := ReadReport([]byte(c.report), []string{one, two})
			if err != nil {
				t.Fatal(err)
			}
			got, err := g.Grade([]byte(c.log), report)
			if !errors.Is(err, c.failure) ||
				c.failure == nil && !maps.Equal(got, map[string]float64{"reward": c.reward, "fail_to_pass": c.fixed,
					"pass_to_pass": c.kept}) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	failOnly := Grading{Parser: "unittest", FailToPass: []string{"a (m)"},
		PassToPass: []string{"b (m)"}, FailOnly: true}
	for test, want := range map[string]float64{"c (m) PASSED": 1, "b (m) FAILED": 0, "a (m) ERROR": 0} {
		t.Run(test, func(t *testing.T) {
			report, err := ReadReport([]byte(reported(one, test)), []string{one})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := failOnly.Grade([]byte(marked("", 0)), report); err != nil || got["reward"] != want {
				t.Errorf("%q: %v, %v", test, got, err)
			}
		})
	}
}

// TestUncompiled: tests of Go that do not compile have failed. A build that failed for
// another reason shows nothing.
func TestUncompiled(t *testing.T) {
	const refused = "# acme/x [acme/x.test]\n./x_test.go:5:7: undefined: New\nFAIL\tacme/x [build failed]\nFAIL"
	for name, c := range map[string]struct {
		grading Grading
		output  string
		exit    int
		graded  bool
	}{
		"refused by the compiler": {Grading{Parser: "gotest"}, refused, 1, true},
		"refused by go vet": {Grading{Parser: "gotest"},
			"# acme/x\nvet: ./x.go:5:7: undefined: New\nFAIL\tacme/x [build failed]\nFAIL", 1, true},
		"with success": {Grading{Parser: "gotest"}, refused, 0, false},
		"killed": {Grading{Parser: "gotest"},
			"acme/x: compile: signal: killed\nFAIL\tacme/x [build failed]\nFAIL", 1, false},
		"without modules": {Grading{Parser: "gotest"},
			"x.go:3:8: no required module provides package y\nFAIL\tacme/x [setup failed]\nFAIL", 1, false},
		"of another program":        {Grading{Parser: "pytest"}, refused, 1, false},
		"what is not named, passed": {Grading{Parser: "gotest", FailOnly: true}, refused, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.grading.FailToPass, c.grading.PassToPass = []string{"TestFix"}, []string{"TestOld"}
			got, err := c.grading.Grade([]byte(marked(c.output, c.exit)), Report{Results: Results{}, Complete: true})
			if c.graded != (err == nil) || !c.graded && !errors.Is(err, ErrNoEvidence) ||
				c.graded && !maps.Equal(got, map[string]float64{"reward": 0, "fail_to_pass": 0, "pass_to_pass": 0}) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestRead(t *testing.T) {
	good := `{"parser": "parse_log_pytest_v2", "fail_to_pass": ["a"], "pass_to_pass": []}`
	if g, err := Read([]byte(good)); err != nil || g.Parser != "pytest" {
		t.Errorf("%+v, %v", g, err)
	}
	for _, bad := range []string{
		"", "[]", `{"parser": "phpunit", "fail_to_pass": ["a"]}`, `{"parser": "pytest"}`,
		`{"parser": "pytest", "fail_to_pass": [""]}`,
		`{"parser": "pytest", "fail_to_pass": ["a"], "pass": ["b"]}`,
		`{"parser": "pytest", "fail_to_pass": ["` + strings.Repeat("x", maxName+1) + `"]}`,
		`{"parser": "pytest", "fail_to_pass": [` + strings.Repeat(`"a",`, maxGraded) + `"a"]}`,
	} {
		if _, err := Read([]byte(bad)); err == nil {
			t.Errorf("%.80q is taken", bad)
		}
	}
}

// FuzzGrade: no log and no report make a grader fail otherwise than with its errors, nor give a
// reward without the tests that it is for.
func FuzzGrade(f *testing.F) {
	f.Add(marked("", 0), reported(one, "fix PASSED"))
	f.Add(marked("", 0), reported(one, "fix PASSED")+reported(two, "fix FAILED"))
	g := Grading{Parser: "pytest", FailToPass: []string{"fix"}}
	f.Fuzz(func(t *testing.T, log, lines string) {
		report, err := ReadReport([]byte(lines), []string{one, two})
		var components map[string]float64
		if err == nil {
			components, err = g.Grade([]byte(log), report)
		}
		if err != nil && !errors.Is(err, ErrNoEvidence) && !errors.Is(err, ErrImitated) &&
			!errors.Is(err, ErrEndedEarly) {
			t.Error(err)
		}
		if components["reward"] == 1 &&
			(report.Results["fix"] != Passed && report.Results["fix"] != XFailed || !strings.Contains(log, EndMark)) {
			t.Errorf("a reward of %q, %q", log, lines)
		}
		for name, status := range report.Results {
			if name == "" || len(name) > maxName || badness[status] == 0 {
				t.Errorf("%q is %q", name, status)
			}
		}
	})
}

// TestUnkept: a test that must go on passing may be skipped, or fail as expected,
// only where it did so before.
func TestUnkept(t *testing.T) {
	g := Grading{PassToPass: []string{"a", "b", "c", "d", "e"}}
	report := Report{Results: Results{"a": Skipped, "b": XFailed, "c": Skipped, "d": Passed, "e": XFailed}}
	if got := g.Unkept(report, Results{"a": Skipped, "b": Skipped, "c": Passed, "d": Passed}); !slices.Equal(got,
		[]string{"c", "e"}) {
		t.Errorf("%v", got)
	}
}

// TestTests: the tests that cost the reward are named with what they failed with, and no others;
// what is too much is counted.
func TestTests(t *testing.T) {
	g := Grading{FailToPass: []string{"fix", "new", "kept"}, PassToPass: []string{"old", "slow", "gone", "odd", "fine"}}
	report := Report{Complete: true, Results: Results{"fix": Failed, "new": XFailed, "kept": Passed, "old": Errored,
		"slow": Skipped, "odd": Skipped, "fine": Passed, "other": Failed},
		Said: map[string]string{"fix": "1 != 2", "other": "no matter"}}
	want := &Tests{Graded: 8, Held: 3, Unmet: []UnmetTest{
		{Name: "fix", State: "failed", Message: "1 != 2"}, {Name: "new", State: "xfail"},
		{Name: "old", State: "error", Regression: true},
		{Name: "gone", State: "missing", Regression: true}, {Name: "odd", State: "skipped", Regression: true},
	}}
	if got := g.Tests(report, 0, []string{"odd"}); !reflect.DeepEqual(got, want) || got.More() != 0 {
		t.Errorf("%+v", got)
	}
	g = Grading{FailToPass: []string{"fix"}}
	for reward, results := range []Results{{"fix": Passed, "other": Failed}, {"fix": Passed}} {
		if got := g.Tests(Report{Complete: true, Results: results}, float64(reward), nil); got.Held != 1 ||
			got.BadEnd != (reward == 0) {
			t.Errorf("reward %d: %+v", reward, got)
		}
	}
	if got := g.Tests(Report{Results: Results{}}, 0, nil); !got.BadEnd || got.Unmet[0].State != "missing" {
		t.Errorf("cut short: %+v", got)
	}
	g = Grading{}
	for i := range 1000 {
		g.FailToPass = append(g.FailToPass, fmt.Sprint(i))
	}
	if got := g.Tests(report, 0, nil); len(got.Unmet) != 200 || got.More() != 800 {
		t.Errorf("%d tests are named, and %d more", len(got.Unmet), got.More())
	}
	g, report.Said = Grading{}, map[string]string{}
	for i := range 1000 {
		name := fmt.Sprint(i, strings.Repeat("ü", 300))
		g.FailToPass, report.Said[name] = append(g.FailToPass, name), strings.Repeat("x\xff", 400)
	}
	got := g.Tests(report, 0, nil)
	data, err := json.Marshal(got)
	if err != nil || len(data) > 40<<10 || len(got.Unmet) < 20 || got.More() != 1000-len(got.Unmet) ||
		!utf8.ValidString(got.Unmet[0].Name+got.Unmet[0].Message) {
		t.Errorf("%d bytes, %d tests and %d more, %v", len(data), len(got.Unmet), got.More(), err)
	}
}
