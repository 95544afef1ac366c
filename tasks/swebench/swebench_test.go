package swebench

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/tasks"
)

// need skips a test where sandboxes do not see a program, or the module pytest.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		path := "/usr/bin/" + program
		if program == "pytest" {
			path = "/usr/lib/python3/dist-packages/pytest"
		}
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s is required by RONDO_REQUIRE_ALL=1", program)
		}
		t.Skipf("%s is missing", program)
	}
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

// readAll reads all instances of a source.
func readAll(source string) (list []Instance, err error) {
	var wrong []error
	err = Read(source, func(one Instance, bad error) {
		list, wrong = append(list, one), append(wrong, bad)
	})
	return list, errors.Join(append(wrong, err)...)
}

// imported imports a sample as the command does.
func imported(t *testing.T, source, repo string) *tasks.Task {
	t.Helper()
	list, err := readAll(source)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d instances, %v", len(list), err)
	}
	dir := t.TempDir()
	if err := list[0].Write(t.Context(), dir, Repositories{list[0].Repo: repo}); err != nil {
		t.Fatal(err)
	}
	loaded, err := tasks.LoadDir(dir)
	if err != nil || len(loaded) != 1 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	return loaded[0]
}

// TestInstances: sample instances in both forms fail without their fix and pass with it, in
// unittest's and go test's logs.
func TestInstances(t *testing.T) {
	sandboxtest.Require(t)
	need(t, "python3", "git")
	for source, repo := range map[string]string{"testdata/instances.jsonl": "testdata/repos/slugs",
		"testdata/folder": "testdata/repos/stock"} {
		t.Run(filepath.Base(repo), func(t *testing.T) {
			t.Parallel()
			task := imported(t, source, repo)
			fixed := map[string]string{"slugs": "slugs.py", "stock": "stock.go"}[filepath.Base(repo)]
			if _, err := fs.Stat(task.Snapshot, ".git/HEAD"); err != nil || task.Workdir != workdir ||
				!slices.Contains(task.Protected, "+"+fixed) || slices.Contains(task.Protected, fixed) {
				t.Errorf("%v, workdir %s, protected %q", err, task.Workdir, task.Protected)
			}
			report := tasks.Lint(t.Context(), task, tasks.LintOptions{Repeats: 1,
				Machine: tasks.Machine{ToolchainCache: cacheDir(t)}})
			if report.Verdict != tasks.VerdictInProcess || len(report.Warnings) != 1 ||
				!strings.Contains(report.Warnings[0], "can be run as canaries") {
				t.Errorf("%+v", report)
			}
		})
	}
}

// TestCommit: of a Git repository the files at the commit are taken, whatever is checked out,
// ignored for archives or filtered.
func TestCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		need(t, "git")
	}
	repo := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example.com"},
			args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	put := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(repo, name)), 0o755),
			os.WriteFile(filepath.Join(repo, name), []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "-q")
	put(".gitattributes", "tests export-ignore\n*.txt export-subst\n")
	put("a.txt", "$Format:%H$")
	put("tests/deep/run.sh", "#!/bin/sh\n")
	if err := os.Symlink("a.txt", filepath.Join(repo, "link")); err != nil {
		t.Fatal(err)
	}
	run("add", "-A")
	run("commit", "-q", "-m", "base")
	base := run("rev-parse", "HEAD")
	put("a.txt", "later")
	run("commit", "-q", "-a", "-m", "fix")

	into := filepath.Join(t.TempDir(), "repo")
	if err := checkOut(t.Context(), repo, base, into); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(into, "link")); err != nil || string(text) != "$Format:%H$" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(into, "tests/deep/run.sh")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("%v, %v", info, err)
	}
	before := filepath.Join(t.TempDir(), "before")
	if err := checkOut(t.Context(), repo, run("rev-parse", "HEAD")+"^", before); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(before, "a.txt")); err != nil || string(text) != "$Format:%H$" {
		t.Errorf("before the last commit: %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(into, ".git")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf(".git: %v", err)
	}
	if err := checkOut(t.Context(), repo, strings.Repeat("0", 40), into+"2"); err == nil {
		t.Error("a commit that is not there")
	}
}

func TestRefusals(t *testing.T) {
	good := Instance{ID: "a__b-1", Repo: "a/b", BaseCommit: "0123456", Problem: "x", LogParser: "pytest",
		FailToPass: Names{"t"}, TestCommand: "true"}
	repos := Repositories{"": "testdata/repos/stock"}
	for want, change := range map[string]func(*Instance){
		"": func(*Instance) {}, "instance_id": func(i *Instance) { i.ID = "../x" },
		"repo ":             func(i *Instance) { i.Repo = "b" },
		"base_commit":       func(i *Instance) { i.BaseCommit = "--output=x" },
		"problem_statement": func(i *Instance) { i.Problem = " " },
		"--test-cmd":        func(i *Instance) { i.TestCommand = "" },
		"--log-parser":      func(i *Instance) { i.LogParser = "" },
		"docker_image":      func(i *Instance) { i.Image = "--rm" },
		"eval_type":         func(i *Instance) { i.EvalType = "other" },
		"parser":            func(i *Instance) { i.LogParser = "parse_log_phpunit" },
		"fail_to_pass":      func(i *Instance) { i.FailToPass = nil },
	} {
		t.Run(want, func(t *testing.T) {
			one := good
			change(&one)
			dir := t.TempDir()
			err := one.Write(context.Background(), dir, repos)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", want, err)
			}
			if left, _ := os.ReadDir(dir); err != nil && len(left) > 0 {
				t.Errorf("%q: %v is left", want, left)
			}
		})
	}
	if err := good.Write(t.Context(), t.TempDir(), Repositories{"c/d": "x"}); err == nil ||
		!strings.Contains(err.Error(), "--repo a/b=PATH") {
		t.Errorf("without its repository: %v", err)
	}
	if got := touched("--- a/x.py\n+++ b/x.py\n--- /dev/null\n+++ b/new[1].py\n--- a/old.py\n+++ /dev/null\n"); !slices.Equal(
		got, []string{`new\[1\].py`, "old.py", "x.py"}) &&
		!slices.Equal(got, []string{`new\[1].py`, "old.py", "x.py"}) {
		t.Errorf("touched %q", got)
	}
}

// TestRows: a row that cannot be read is refused with its number, its instance and its field,
// and takes no other with it.
func TestRows(t *testing.T) {
	row := func(field, value string) string {
		fields := []string{`"instance_id": "a"`, `"version": "1"`, `"FAIL_TO_PASS": "[\"t\"]"`}
		for i, f := range fields {
			if strings.HasPrefix(f, `"`+field+`"`) {
				fields[i] = ""
			}
		}
		fields = slices.DeleteFunc(append(fields, `"`+field+`": `+value), func(f string) bool { return f == "" })
		return "{" + strings.Join(fields, ", ") + "}"
	}
	good := row("instance_id", `"b"`)
	for name, c := range map[string]struct{ text, version, want string }{
		"a number as version":  {row("version", "1.0"), "1.0", ""},
		"no number":            {row("hints_text", "NaN"), "1", ""},
		"less than any number": {row("created_at", "-Infinity"), "1", ""},
		"NaN in a text":        {row("version", `"is \"NaN, NaN"`), `is "NaN, NaN`, ""},
		"null":                 {row("version", "null"), "", ""},
		"over several lines": {"{\n\"instance_id\": \"a\",\n \"x\": {\n  \"y\": 1\n }, \"version\":\n\"1\"\n}", "1",
			""},
		"a list in Python":       {row("FAIL_TO_PASS", `"['t']"`), "", "row 1 a: FAIL_TO_PASS"},
		"a list of numbers":      {row("FAIL_TO_PASS", `[1]`), "", "row 1 a: FAIL_TO_PASS"},
		"a number as statement":  {row("problem_statement", `7`), "", "row 1 a: problem_statement"},
		"a list as patch":        {row("patch", `[]`), "", "row 1 a: patch"},
		"a list":                 {`{"x": [}`, "", "row 1"},
		"half a row":             {`{"instance_id": "a", `, "", "row 1"},
		"a text":                 {`"a"`, "", "row 1"},
		"a row that names no id": {row("instance_id", "5"), "", "row 1 : instance_id"},
	} {
		for form, text := range map[string]string{"lines": c.text + "\n" + good + "\n",
			"a mark before them": string(byteOrderMark) + c.text + "\r\n" + good,
			"an array":           "[" + c.text + ",\n" + good + "]"} {
			if form == "an array" && (name == "a list" || name == "half a row") {
				continue // it is no JSON
			}
			t.Run(name+"/"+form, func(t *testing.T) {
				var list []Instance
				var wrong []error
				if err := readLines(strings.NewReader(text), func(one Instance, err error) {
					if err != nil {
						wrong = append(wrong, err)
					} else {
						list = append(list, one)
					}
				}); err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 || list[len(list)-1].ID != "b" {
					t.Fatalf("the good row is lost: %v, %v", list, wrong)
				}
				switch {
				case c.want == "" &&
					(len(wrong) > 0 || len(list) != 2 || list[0].Version != c.version || list[0].ID != "a"):
					t.Errorf("%+v, %v", list, wrong)
				case c.want != "" &&
					(len(wrong) != 1 || len(list) != 1 || !strings.Contains(wrong[0].Error(), c.want) ||
						strings.Contains(wrong[0].Error(), "Go ")):
					t.Errorf("%+v, %v", list, wrong)
				}
			})
		}
	}
}

// TestVersionIsText: a version that YAML reads as a number would be that of other specs.
func TestVersionIsText(t *testing.T) {
	dir := t.TempDir()
	settings := filepath.Join(dir, "tasks", "acme__stock-2", "task.yaml")
	text, err := os.ReadFile("testdata/folder/tasks/acme__stock-2/task.yaml")
	if err = errors.Join(err, os.CopyFS(dir, os.DirFS("testdata/folder")), os.Remove(settings)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(settings, bytes.Replace(text, []byte(`version: "1.0"`), []byte("version: 1.0"), 1),
		0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(dir); err == nil ||
		!strings.Contains(err.Error(), "version: must be a text: put it into quotes") {
		t.Errorf("read: %v", err)
	}
}

// FuzzRead: no file makes the reader fail otherwise than with an error.
func FuzzRead(f *testing.F) {
	f.Add(`{"instance_id": "a", "FAIL_TO_PASS": "[\"x\"]"}`)
	f.Add(`[{"FAIL_TO_PASS": ["x"]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		given := 0
		err := readLines(strings.NewReader(text), func(Instance, error) { given++ })
		if err == nil && given > maxInstances {
			t.Error(given)
		}
	})
}
