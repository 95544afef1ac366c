package swebench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/tasks"
)

// published reads the sample row with the fields of SWE-bench's data set alone.
func published(t *testing.T) Instance {
	t.Helper()
	list, err := readAll("testdata/published.jsonl")
	if err != nil || len(list) != 1 {
		t.Fatalf("%d instances, %v", len(list), err)
	}
	return list[0]
}

// TestPublishedRow: a row as it is published has the fields of the data set and no others. It says
// what it lacks, and with a table becomes a task that fails without its fix and passes with it.
func TestPublishedRow(t *testing.T) {
	text, err := os.ReadFile("testdata/published.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var row map[string]any
	if err := json.Unmarshal(text, &row); err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields("repo instance_id base_commit patch test_patch problem_statement hints_text created_at version FAIL_TO_PASS PASS_TO_PASS environment_setup_commit")
	for _, name := range fields {
		if _, there := row[name]; !there || len(row) != len(fields) {
			t.Errorf("%s: %v, of %d fields", name, there, len(row))
		}
	}
	repos := Repositories{"": "testdata/repos/slugs"}
	one := published(t)
	if err := one.Write(t.Context(), t.TempDir(), repos); err == nil || !strings.Contains(err.Error(), "--test-cmd") ||
		!strings.Contains(err.Error(), "acme/slugs 1.0") {
		t.Errorf("without a command: %v", err)
	}
	sandboxtest.Require(t)
	need(t, "python3", "git")
	specs, err := ReadSpecs("testdata/specs.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := one.Complete(specs).Write(t.Context(), dir, repos); err != nil {
		t.Fatal(err)
	}
	loaded, err := tasks.LoadDir(dir)
	if err != nil || len(loaded) != 1 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	if report := tasks.Lint(t.Context(), loaded[0], tasks.LintOptions{Repeats: 1,
		Machine: tasks.Machine{ToolchainCache: cacheDir(t)}}); !report.OK {
		t.Errorf("%+v", report)
	}
}

func TestSpecs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "specs.json")
	text := `{"a/b": {"*": {"log_parser": "pytest", "install": "pip install ."}, "1.0": {"test_cmd": ["make", "pytest -rA"]}}, "*": {"1.0": {"test_cmd": "other", "docker_image": "x/y.{id}:1"}}}`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	specs, err := ReadSpecs(file)
	if err != nil {
		t.Fatal(err)
	}
	specs = specs.Else(Spec{TestCommand: "default", LogParser: "gotest"})
	patch := "+++ b/tests/forms/test_it.py\n+++ b/tests/data.json\n+++ b/tests/forms/test_it.py\n+++ b/te st.py\n--- a/gone.py\n+++ /dev/null\n"
	for name, c := range map[string]struct{ row, want Instance }{
		"of the version": {Instance{Repo: "a/b", Version: "1.0", ID: "A__b-1"},
			Instance{TestCommand: "make && pytest -rA 'te st.py' tests/forms/test_it.py", LogParser: "pytest",
				Image: "x/y.a_1776_b-1:1"}},
		"another version": {Instance{Repo: "a/b", Version: "2.0"},
			Instance{TestCommand: "default 'te st.py' tests/forms/test_it.py", LogParser: "pytest"}},
		"Django's modules": {Instance{Repo: "django/django", Version: "3"},
			Instance{TestCommand: "default 'te st' forms.test_it", LogParser: "gotest"}},
		"the row goes over": {Instance{Repo: "a/b", Version: "1.0", TestCommand: "own", LogParser: "unittest",
			Image: "i"}, Instance{TestCommand: "own", LogParser: "unittest", Image: "i"}},
		"a script": {Instance{Repo: "a/b", EvalScript: "x"}, Instance{EvalScript: "x", LogParser: "pytest"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.row.TestPatch = patch
			got := c.row.Complete(specs)
			if got.TestCommand != c.want.TestCommand || got.LogParser != c.want.LogParser || got.Image != c.want.Image {
				t.Errorf("%q, %q, %q", got.TestCommand, got.LogParser, got.Image)
			}
		})
	}
	for _, bad := range []string{"", "[]", `{"a/b": {"1.0": {"test_cmd": 7}}}`} {
		if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSpecs(file); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestKnownRepositories: of SWE-bench's own repositories it is known how their tests run, unless
// somebody says otherwise.
func TestKnownRepositories(t *testing.T) {
	const patch = "+++ b/tests/forms/test_it.py\n"
	for name, c := range map[string]struct {
		row             Instance
		specs           Specs
		command, parser string
	}{
		"Django": {Instance{Repo: "django/django", Version: "3.1"}, nil,
			"PYTHONIOENCODING=utf8 LC_ALL=C.UTF-8 ./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 forms.test_it", "unittest"},
		"SymPy": {Instance{Repo: "sympy/sympy", Version: "1.0"}, nil,
			"PYTHONWARNINGS=ignore::UserWarning,ignore::SyntaxWarning bin/test -C --verbose tests/forms/test_it.py",
			"sympy"},
		"another repository": {Instance{Repo: "acme/slugs", Version: "1.0"}, nil, "", ""},
		"a table": {Instance{Repo: "sympy/sympy", Version: "1.0"},
			Specs{}.Else(Spec{TestCommand: "pytest", LogParser: "pytest"}), "pytest tests/forms/test_it.py", "pytest"},
		"half a table": {Instance{Repo: "sympy/sympy", Version: "1.0"}, Specs{}.Else(Spec{TestCommand: "pytest"}),
			"pytest tests/forms/test_it.py", ""},
		"an image alone": {Instance{Repo: "psf/requests", Version: "2.9"}, Specs{}.Else(Spec{Image: "x"}),
			"pytest -rA tests/forms/test_it.py", "pytest"},
		"the row": {Instance{Repo: "psf/requests", EvalScript: "x", LogParser: "pytest"}, nil, "", "pytest"},
	} {
		c.row.TestPatch = patch
		if got := c.row.Complete(c.specs); got.TestCommand != c.command || got.LogParser != c.parser {
			t.Errorf("%s: %q, %q", name, got.TestCommand, got.LogParser)
		}
	}
}

// TestListsOfTests: what a published list has of pytest's progress is no test.
func TestListsOfTests(t *testing.T) {
	var row Instance
	if err := json.Unmarshal(
		[]byte(`{"FAIL_TO_PASS": "[\"t.py::a[100%]\", \"[100%]\"]", "PASS_TO_PASS": ["[  5%]", "b"]}`),
		&row); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(row.FailToPass, Names{"t.py::a[100%]"}) || !slices.Equal(row.PassToPass, Names{"b"}) {
		t.Errorf("%q, %q", row.FailToPass, row.PassToPass)
	}
}

// TestImageOfAnInstance: with an image the repository may be left out, for it holds one.
func TestImageOfAnInstance(t *testing.T) {
	one := published(t).Complete(Specs{}.Else(Spec{TestCommand: "pytest", LogParser: "pytest",
		Image: "acme/eval.{id}:latest"}))
	for _, repos := range []Repositories{{}, {"": "testdata/repos/slugs"}} {
		dir := t.TempDir()
		if err := one.Write(t.Context(), dir, repos); err != nil {
			t.Fatal(err)
		}
		loaded, err := tasks.LoadDir(dir)
		if err != nil || len(loaded) != 1 {
			t.Fatalf("%d tasks, %v", len(loaded), err)
		}
		if task := loaded[0]; task.Image != "acme/eval.acme_1776_slugs-1:latest" ||
			(task.Snapshot == nil) != (len(repos) == 0) {
			t.Errorf("image %q, snapshot %v", task.Image, task.Snapshot)
		}
	}
}
