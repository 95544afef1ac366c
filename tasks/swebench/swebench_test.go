package swebench

import (
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

// imported imports a sample as the command does.
func imported(t *testing.T, source, repo string) *tasks.Task {
	t.Helper()
	list, err := Read(source)
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

// TestInstances: sample instances in both forms fail without their fix and pass with it, in unittest's and go test's logs.
func TestInstances(t *testing.T) {
	sandboxtest.Require(t)
	need(t, "python3", "git")
	for source, repo := range map[string]string{"testdata/instances.jsonl": "testdata/repos/slugs", "testdata/folder": "testdata/repos/stock"} {
		t.Run(filepath.Base(repo), func(t *testing.T) {
			t.Parallel()
			task := imported(t, source, repo)
			fixed := map[string]string{"slugs": "slugs.py", "stock": "stock.go"}[filepath.Base(repo)]
			if _, err := fs.Stat(task.Snapshot, ".git/HEAD"); err != nil || task.Workdir != workdir || !slices.Contains(task.Protected, "+"+fixed) || slices.Contains(task.Protected, fixed) {
				t.Errorf("%v, workdir %s, protected %q", err, task.Workdir, task.Protected)
			}
			report := tasks.Lint(t.Context(), task, tasks.LintOptions{Repeats: 1, Machine: tasks.Machine{ToolchainCache: cacheDir(t)}})
			if report.Verdict != tasks.VerdictInProcess || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "can be run as canaries") {
				t.Errorf("%+v", report)
			}
		})
	}
}

// TestCommit: of a Git repository the files at the commit are taken, whatever is checked out, ignored for archives or filtered.
func TestCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		need(t, "git")
	}
	repo := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	put := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(repo, name)), 0o755), os.WriteFile(filepath.Join(repo, name), []byte(text), 0o755)); err != nil {
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
	good := Instance{ID: "a__b-1", Repo: "a/b", BaseCommit: "0123456", Problem: "x", LogParser: "pytest", FailToPass: Names{"t"}, TestCommand: "true"}
	repos := Repositories{"": "testdata/repos/stock"}
	for want, change := range map[string]func(*Instance){
		"": func(*Instance) {}, "instance_id": func(i *Instance) { i.ID = "../x" }, "repo ": func(i *Instance) { i.Repo = "b" }, "base_commit": func(i *Instance) { i.BaseCommit = "--output=x" },
		"problem_statement": func(i *Instance) { i.Problem = " " }, "--test-cmd": func(i *Instance) { i.TestCommand = "" }, "--log-parser": func(i *Instance) { i.LogParser = "" }, "docker_image": func(i *Instance) { i.Image = "--rm" }, "eval_type": func(i *Instance) { i.EvalType = "other" },
		"parser": func(i *Instance) { i.LogParser = "parse_log_phpunit" }, "fail_to_pass": func(i *Instance) { i.FailToPass = nil },
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
	if err := good.Write(t.Context(), t.TempDir(), Repositories{"c/d": "x"}); err == nil || !strings.Contains(err.Error(), "--repo a/b=PATH") {
		t.Errorf("without its repository: %v", err)
	}
	if got := touched("--- a/x.py\n+++ b/x.py\n--- /dev/null\n+++ b/new[1].py\n--- a/old.py\n+++ /dev/null\n"); !slices.Equal(got, []string{`new\[1\].py`, "old.py", "x.py"}) && !slices.Equal(got, []string{`new\[1].py`, "old.py", "x.py"}) {
		t.Errorf("touched %q", got)
	}
}

// FuzzRead: no file makes the reader fail otherwise than with an error.
func FuzzRead(f *testing.F) {
	f.Add(`{"instance_id": "a", "FAIL_TO_PASS": "[\"x\"]"}`)
	f.Add(`[{"FAIL_TO_PASS": ["x"]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := readLines(strings.NewReader(text))
		if err == nil && len(list) > maxInstances {
			t.Error(len(list))
		}
	})
}
