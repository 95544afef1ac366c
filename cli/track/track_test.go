package track

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events/runfile"
)

// interpreter makes a program in the place of Python: it has the package, and body is
// what `-m rondo.track` does.
func interpreter(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = -c ] && exit 0\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// two is a run with two steps that are taken, and with trackers.
func two(t *testing.T, trackers ...runfile.Tracker) *clitest.Recorded {
	t.Helper()
	r := clitest.NewRecordedWith(t, func(c *runfile.RunConfig) { c.Trackers = trackers }, clitest.Deciding...)
	for step := range 2 {
		r.Whole(int64(step+1), "fix-a", 0, 1, 0)
		r.Batch("trainer", step+1)
		r.Consumed("trainer", int64(step+1))
	}
	return r
}

func TestPythonIsHandedTheRows(t *testing.T) {
	r := two(t)
	out := filepath.Join(t.TempDir(), "rows")
	python := interpreter(t, `echo "$@" >`+out+`.args; cat >`+out+`; echo written`)
	output, err := clitest.Run(t, New, "track", "first", "--to", "mlflow", "--project", "maths", "--python", python,
		"--once", "--dir", r.Dir)
	if err != nil || output != "written\n" {
		t.Fatalf("%v: %s", err, output)
	}
	args, err := os.ReadFile(out + ".args")
	if err != nil || string(args) != "-m rondo.track first --to mlflow --project maths --logdir runs\n" {
		t.Errorf("%v: Python was called with %q", err, args)
	}
	rows, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for line := range strings.Lines(string(rows)) {
		var told struct {
			Kind, Run, Feed string
			Step            int64
			Complete        bool
			Figures         map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		kinds = append(kinds, told.Kind)
		switch told.Kind {
		case "run":
			if told.Run != "first" || told.Feed != "trainer" {
				t.Errorf("run: %s", line)
			}
		case "step":
			if told.Step != int64(len(kinds)-1) || told.Figures["reward/mean"] != 0.5 ||
				told.Figures["rollouts/scored"] != 2 {
				t.Errorf("step: %s", line)
			}
		case "end":
			if told.Complete {
				t.Errorf("the run is open: %s", line)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "run step step end" {
		t.Errorf("lines are %s", got)
	}
}

// A command that follows ends when Python does, though no row comes any more.
func TestTheEndOfPythonEndsTheCommand(t *testing.T) {
	r := two(t)
	_, err := clitest.Run(t, New, "track", "first", "--to", "wandb",
		"--python", interpreter(t, `head -n 3 >/dev/null; kill -9 $$`), "--dir", r.Dir)
	if err == nil || !strings.Contains(err.Error(), "goes on behind the last step") {
		t.Errorf("killed: %v", err)
	}
	_, err = clitest.Run(t, New, "track", "first", "--to", "wandb",
		"--python", interpreter(t, `exit 3`), "--dir", r.Dir)
	if err == nil || err.Error() != "" {
		t.Errorf("a failure that Python has told: %v", err)
	}
}

func TestTrackSaysWhatIsMissing(t *testing.T) {
	r := two(t)
	without := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(without,
		[]byte("#!/bin/sh\necho 'ModuleNotFoundError: No module named rondo' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := interpreter(t, "cat >/dev/null")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no Python":    {[]string{"first", "--to", "wandb", "--python", "/nowhere/python"}, "track needs Python"},
		"no package":   {[]string{"first", "--to", "wandb", "--python", without}, "No module named rondo"},
		"no tracker":   {[]string{"first", "--to", "visdom", "--python", good}, "mlflow, tensorboard, trackio, wandb"},
		"none named":   {[]string{"first", "--python", good}, "names no trackers"},
		"no run given": {[]string{"--to", "wandb", "--python", good}, "--to needs a RUN"},
		"feed alone":   {[]string{"first", "--feed", "trainer", "--python", good}, "--feed belongs to --to"},
		"no run":       {[]string{"second", "--to", "wandb", "--python", good}, `no run "second"`},
		"no such feed": {[]string{"first", "--to", "wandb", "--python", good, "--feed", "judge"},
			"it has trainer, shadow"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := clitest.Run(t, New, append(append([]string{"track"}, c.args...), "--dir", r.Dir,
				"--once")...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
