package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
)

// run is what a command answers in a folder.
func run(t *testing.T, dir string, args ...string) error {
	t.Helper()
	t.Chdir(dir)
	cmd := NewInit(&app.Global{})
	if args[0] == "task" {
		cmd = NewTask(&app.Global{})
	}
	cmd.SetArgs(args[1:])
	cmd.SetOut(t.Output())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.Execute()
}

// TestInit: what is written can be read, the tasks of the run file lie beside it,
// and nothing is overwritten.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "mine"}, {"task", "another", "--tasks", "mine/tasks"}} {
		if err := run(t, dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	f, err := opening.ReadRunFile("mine/run.yaml")
	if err != nil || f.TasksDir != "mine/tasks" {
		t.Fatalf("the run file's tasks are %q: %v", f.TasksDir, err)
	}
	pack, err := opening.LoadTasks(f.TasksDir)
	if err != nil || len(pack) != 2 || pack[0].Name != "another" || pack[1].Name != "word-count" {
		t.Fatalf("%v: %v", pack, err)
	}
	for _, task := range pack {
		if len(task.Warnings) > 0 || task.Verifier() != "separate" {
			t.Errorf("task %s: %v, %s", task.Name, task.Warnings, task.Verifier())
		}
	}
	if err := os.Remove("mine/README.md"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "mine"}, {"task", "another", "--tasks", "mine/tasks"},
		{"task", "../escape"}, {"task", "Über"}} {
		if err := run(t, dir, args...); err == nil {
			t.Errorf("%v: want an error", args)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "mine/README.md")); err == nil {
		t.Error("a second init wrote a part of its files")
	}
}

// TestRewardFunctionOfARunFile: the lines that README.md says to uncomment are a run file's.
func TestRewardFunctionOfARunFile(t *testing.T) {
	text := strings.ReplaceAll(string(templateFile("run.yaml")), "\n# scorer:\n#  ", "\nscorer:\n ")
	name := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := opening.ReadRunFile(name)
	if err != nil || f.Scorer.Function != "brevity" || f.Scorer.Weights["brevity"] != 0.1 {
		t.Errorf("%+v: %v", f.Scorer, err)
	}
}
