package tasks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// needSandbox skips a test where this machine cannot hold sandboxes.
func needSandbox(t *testing.T) {
	t.Helper()
	if _, err := sandbox.Probe(t.Context()); err != nil {
		lacking(t, "sandboxes do not work here: %v", err)
	}
}

// lacking skips a test for want of something, unless all tests are required.
func lacking(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// cacheDir is kept between runs: to fill it takes half a minute.
func cacheDir(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if dir = filepath.Join(dir, "rondo", "toolchains"); err != nil || os.MkdirAll(dir, 0o755) != nil {
		return t.TempDir()
	}
	return dir
}

// TestOurTasksAreSound: by day each proof is made once. By night it is repeated, which shows
// what is not deterministic.
func TestOurTasksAreSound(t *testing.T) {
	needSandbox(t)
	repeats := nightly.Count(1, defaultRepeats)
	for _, pack := range shipped() {
		loaded, err := LoadPack(pack)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range loaded {
			t.Run(task.Name, func(t *testing.T) {
				report := Lint(t.Context(), task, LintOptions{Machine: Machine{ToolchainCache: cacheDir(t)},
					Repeats: repeats})
				if !report.OK || len(report.Warnings) > 0 || len(report.Nothing) != repeats ||
					len(report.Solution) != repeats {
					text, _ := json.MarshalIndent(report, "", " ")
					t.Errorf("%s", text)
				}
			})
		}
	}
}

func TestLintFindsUnsoundTasks(t *testing.T) {
	needSandbox(t)
	const (
		half   = "test -f fixed && r=0.5 || r=0\necho \"{\\\"reward\\\": $r}\" >/logs/verifier/reward.json\n"
		honest = "test -f fixed && r=1 || r=0\necho \"{\\\"reward\\\": $r}\" >/logs/verifier/reward.json\n"
	)
	cases := []struct {
		name, tests, solve, want string
	}{
		{"sound", honest, "touch fixed", ""},
		{"always right", "echo 1 >/logs/verifier/reward.txt", "touch fixed",
			"doing nothing, attempt 1: scores 1 instead of 0"},
		{"half right", half, "touch fixed", "the solution, attempt 1: scores 0.5 instead of 1"},
		{"wrong solution", honest, "touch other", "the solution, attempt 3: scores 0 instead of 1"},
		{"idle solution", honest, "true", "it changed nothing"},
		{"failing solution", honest, "touch fixed; echo oops >&2; exit 3", "exit 3: oops"},
		{"no reward", "true", "touch fixed", "no score (no_reward)"},
		{"bad reward", "echo good >/logs/verifier/reward.txt", "touch fixed", "no score (bad_reward)"},
		{"endless", "sleep 1000", "touch fixed", "no score (timeout)"},
		{"no solution", honest, "", "solution/solve.sh: missing"},
	}
	cache := t.TempDir()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			changes := fstest.MapFS{
				"t/task.toml": file(
					"[metadata.rondo]\nsnapshot = \"environment/repo\"\n[verifier]\ntimeout_sec = 2"),
				"t/tests/test.sh":     file(test.tests),
				"t/solution/solve.sh": file(test.solve),
			}
			repeats := 3
			if test.name == "endless" {
				changes["t/task.toml"], repeats = file(
					"[metadata.rondo]\nsnapshot = \"environment/repo\"\n[verifier]\ntimeout_sec = 0.2"), 1
			}
			if test.solve == "" {
				changes["t/solution/solve.sh"] = nil
			}
			loaded, err := LoadPack(with(changes))
			if err != nil {
				t.Fatal(err)
			}
			report := Lint(t.Context(), loaded[0], LintOptions{Repeats: repeats,
				Machine: Machine{ToolchainCache: cache}})
			if proven := Unproven(loaded, cache) == 0; proven != report.OK {
				t.Errorf("proven: %v", proven)
			}
			problems := strings.Join(report.Problems, "\n")
			if report.OK != (test.want == "") || !strings.Contains(problems, test.want) {
				t.Errorf("ok %v, problems %q, want %q", report.OK, problems, test.want)
			}
		})
	}
}

func TestInspect(t *testing.T) {
	const fix = "#!/bin/sh\nsed -i s/wrong/right/ file.txt\n"
	loaded, err := LoadPack(with(fstest.MapFS{
		"t/environment/repo/old/fix.sh":  file(fix),
		"t/solution/solve.sh":            file(fix),
		"t/tests/cases.txt":              file("1 2 3 4 5 6 7 8 9 10 11 12 13\n"),
		"t/environment/repo/cases.txt":   file("1 2 3 4 5 6 7 8 9 10 11 12 13\n"),
		"t/environment/repo/.git/HEAD":   file("ref: refs/heads/main\n"),
		"t/environment/repo/unrelated":   file("something else entirely, long enough\n"),
		"t/environment/repo/.gitignore2": file("x"),
	}))
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	report.inspect(loaded[0])
	if got := strings.Join(report.Problems,
		"\n"); got != "the snapshot shows the agent solution/solve.sh as old/fix.sh" {
		t.Errorf("problems %q", got)
	}
	warnings := strings.Join(report.Warnings, "\n")
	for _, want := range []string{".git folder", "tests/cases.txt as cases.txt", "the tests run in process"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings %q lack %q", warnings, want)
		}
	}
	if len(report.Warnings) != 3 {
		t.Errorf("warnings %q", warnings)
	}
}

// TestLintOfTestsInProcess: a task whose tests share a sandbox with what they test is never ok.
// What it says depends on whether canaries guard the tests.
func TestLintOfTestsInProcess(t *testing.T) {
	graded := func(assertion string) fstest.MapFS {
		return fstest.MapFS{
			"t/tests/grading.json": file(`{"parser": "pytest", "fail_to_pass": ["test_x.py::test_x", "test_x.py::test_y"], "pass_to_pass": []}`),
			"t/tests/test_x.py":    file("def test_x():\n    assert " + assertion + "\n"),
		}
	}
	for name, c := range map[string]struct {
		pack            fstest.MapFS
		level, want     string
		canaries, tests int
	}{
		"graded": {graded("f() == 1"), runfile.VerifierInProcess,
			"1 of the 2 tests that must begin to pass can be run as canaries", 1, 2},
		"without a number": {graded("f()"), runfile.VerifierUnguarded,
			"and compares with a constant on a line that the task hides", 0, 2},
		"another language": {fstest.MapFS{
			"t/tests/grading.json": file(`{"parser": "junit", "fail_to_pass": ["XTest.x"], "pass_to_pass": []}`),
			"t/tests/XTest.java":   file("class XTest { @Test void x() { assertEquals(1, X.f()); } }\n"),
		}, runfile.VerifierUnguarded, "none is in Python, Go, Rust, JavaScript or TypeScript", 0, 1},
		"not graded": {fstest.MapFS{}, runfile.VerifierUnguarded, "the command under-test", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := LoadPack(with(c.pack))
			if err != nil {
				t.Fatal(err)
			}
			var report Report
			report.inspect(loaded[0])
			if guarded, all := loaded[0].Canaries(); report.Verifier != c.level || report.Canaries != c.canaries ||
				guarded != c.canaries || all != c.tests ||
				!strings.Contains(strings.Join(report.Warnings, "\n"), c.want) {
				t.Errorf("%+v", report)
			}
			if spec := loaded[0].Spec(); spec.Verifier != c.level {
				t.Errorf("a run takes it for %s", spec.Verifier)
			}
		})
	}
}

// TestLintNamesProtectedFiles: work that is put back before the tests see it is named,
// with what takes it back.
func TestLintNamesProtectedFiles(t *testing.T) {
	needSandbox(t)
	const tests = "test -f conftest.py && r=1 || r=0\necho $r >/logs/verifier/reward.txt\n"
	for settings, sound := range map[string]bool{"": false, "protected = [\"!conftest.py\"]": true,
		"changes = [\"conftest.py\"]": true, "changes = [\"**/*.py\"]": false} {
		loaded, err := LoadPack(with(fstest.MapFS{
			"t/task.toml":     file("[metadata.rondo]\nsnapshot = \"environment/repo\"\n" + settings),
			"t/tests/test.sh": file(tests), "t/solution/solve.sh": file("touch conftest.py"),
		}))
		if err != nil {
			t.Fatal(err)
		}
		report := Lint(t.Context(), loaded[0], LintOptions{Repeats: 1})
		problems := strings.Join(report.Problems, "\n")
		if named := strings.Contains(problems, "the solution changes conftest.py, which is protected") &&
			strings.Contains(problems, `[metadata.rondo] protected = ["!conftest.py"]`) &&
			strings.Contains(problems, "protected_path"); report.OK != sound || named == sound {
			t.Errorf("%s: ok %v, problems %s", settings, report.OK, problems)
		}
		if sound && report.Verdict != VerdictInProcess {
			t.Errorf("%s: %s", settings, report.Verdict)
		}
	}
}

// TestSeparateGradedTests: tests apart from the workspace are graded by a report that code under
// test cannot write, or not at all.
func TestSeparateGradedTests(t *testing.T) {
	for parser, ok := range map[string]bool{"pytest": true, "unittest": true, "gotest": true, "jest": false,
		"cargo": false, "sympy": false, "junit": false} {
		pack := with(fstest.MapFS{"t/tests/grading.json": file(`{"parser": "` + parser +
			`", "fail_to_pass": ["a"], "pass_to_pass": []}`)})
		toml := string(pack["t/task.toml"].Data)
		pack["t/task.toml"] = file(toml + "\nverifier = \"separate\"\n")
		loaded, err := LoadPack(pack)
		if (err == nil) != ok || err != nil &&
			!strings.Contains(err.Error(), "cannot be graded by the report of "+parser) {
			t.Errorf("%s: %v", parser, err)
		}
		if err == nil && loaded[0].Verifier() != runfile.VerifierSeparate {
			t.Errorf("%s: %s", parser, loaded[0].Verifier())
		}
	}
}
