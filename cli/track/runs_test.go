package track

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// calls are the lines that interpreters of a test wrote, one for each start.
func calls(t *testing.T, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestTrackersOfTheRunFile: without --to, each tracker of the run's file gets its feed's rows, in
// its project or that of the flag.
func TestTrackersOfTheRunFile(t *testing.T) {
	r := two(t, runfile.Tracker{To: "wandb", Project: "maths"}, runfile.Tracker{To: "mlflow", Feed: "shadow"})
	called := filepath.Join(t.TempDir(), "called")
	python := interpreter(t, `rows=$(cat); echo "$@" $(echo "$rows" | wc -l) >>`+called)
	if output, err := clitest.Run(t, New, "track", "first", "--once", "--project", "theirs", "--logdir", "l",
		"--python", python, "--dir", r.Dir); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	got := calls(t, called)
	for _, want := range []string{"-m rondo.track first --to wandb --project maths --logdir l 4",
		"-m rondo.track first --to mlflow --project theirs --logdir l 2"} {
		if len(got) != 2 || got[0] != want && got[1] != want {
			t.Errorf("Python was called with %q, want %s", got, want)
		}
	}
}

// TestRunsAreTrackedAsTheyAreOpened: without RUN, each run whose file names trackers is
// written, whenever it is opened; one that names none and a replay are not. A tracker
// that fails is tried again.
func TestRunsAreTrackedAsTheyAreOpened(t *testing.T) {
	r := two(t, runfile.Tracker{To: "wandb"})
	called := filepath.Join(t.TempDir(), "called")
	python := interpreter(t,
		fmt.Sprintf(`echo "$3" >>%[1]s; [ "$(grep -c second %[1]s)" = 1 ] && [ "$3" = second ] && exit 3; cat >/dev/null`, called))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var said, complained strings.Builder
	go func() {
		root := app.New(New)
		root.SetArgs([]string{"track", "--python", python, "--dir", r.Dir})
		root.SetOut(&said)
		root.SetErr(&complained)
		ended <- root.ExecuteContext(ctx)
	}()
	natstest.Eventually(t, "the first run is written", func() bool { return calls(t, called)[0] == "first" })
	cfg := servicetest.Config("fix-a")
	servicetest.OpenRun(t, r.Log, "plain", cfg)
	cfg.Trackers = []runfile.Tracker{{To: "mlflow"}}
	if err := r.Log.Streams.EnsureRun(t.Context(), "replayed"); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"replayed", events.Catalogue} {
		opened := events.RunOpened{Config: cfg, Replays: &events.Replayed{Run: "first"}}
		servicetest.Append(t, r.Log, servicetest.Event(t, place, events.RunOpenedType, "replayed", "0", opened))
	}
	servicetest.OpenRun(t, r.Log, "second", cfg)
	natstest.Eventually(t, "the second run is written at the second try",
		func() bool { return len(calls(t, called)) == 3 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if got := fmt.Sprint(calls(t, called)); got != "[first second second]" {
		t.Errorf("written were %s", got)
	}
	if text := complained.String(); !strings.Contains(text, "run second, mlflow: Python has ended") ||
		strings.Count(text, "again in") != 1 {
		t.Errorf("it complains %q", text)
	}
}
