package gc

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// archivedRun makes a closed run of which only the archive is left, with a workspace of its own and
// one that others may name.
func (r *stored) archivedRun(run string, shared storage.Ref) (own storage.Ref, trajectory string) {
	r.T.Helper()
	store := r.Log.Store()
	servicetest.OpenRun(r.T, r.Log, run, servicetest.Config("fix-a"))
	own = servicetest.Blob(r.T, store, []byte("a workspace of "+run))
	for i, workspace := range []storage.Ref{own, shared} {
		id := events.RolloutID(events.GroupID(1), i)
		servicetest.StartRollout(r.T, r.Log, run, id, "fix-a")
		servicetest.Append(r.T, r.Log, servicetest.Event(r.T, run, events.ToolsCompletedType, id,
			"0", events.ToolsCompleted{Workspace: &workspace}))
		finished := servicetest.Finished(r.T, store, run, id, servicetest.Trajectory(run, id, "fix-a"))
		servicetest.Append(r.T, r.Log, servicetest.Event(r.T, run, events.RolloutFinishedType, id, "0", finished))
		trajectory = finished.Trajectory.Key
	}
	servicetest.CloseRun(r.T, r.Log, run)
	if _, err := r.Log.Appender.Seal(r.T.Context(), run, true); err != nil {
		r.T.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(r.T.Context(), run); err != nil {
		r.T.Fatal(err)
	}
	return own, trajectory
}

// names are the runs that a report says are, or could be, forgotten.
func names(report gc.Report) (runs []string) {
	for _, run := range report.Forgotten {
		runs = append(runs, run.Run)
	}
	return runs
}

// TestGCForgetsRuns: retention takes the archived runs that are too old or too many, and of those
// what no other run refers to.
func TestGCForgetsRuns(t *testing.T) {
	r := &stored{clitest.NewRecorded(t)}
	shared := servicetest.Blob(t, r.Log.Store(), []byte("a workspace of several runs"))
	_, ids := r.Group(1, "fix-a", 1, 0)
	r.State(events.ToolsCompletedType, ids[0], "0", events.ToolsCompleted{Workspace: &shared})
	_, _ = r.archivedRun("a", shared)
	own, trajectory := r.archivedRun("b", shared)
	keptOwn, keptTrajectory := r.archivedRun("c", shared)
	servicetest.OpenRun(t, r.Log, "closed", servicetest.Config("fix-a")) // and archived, but its stream is there
	servicetest.CloseRun(t, r.Log, "closed")
	if _, err := r.Log.Appender.Seal(t.Context(), "closed", true); err != nil {
		t.Fatal(err)
	}
	r.age()
	before, audits := r.objects(), r.audit("first")+r.audit("c")

	for _, c := range []struct {
		args string
		want []string
	}{
		{"--forget-older-than 1h", nil},
		{"--forget-older-than 1ns --keep-runs 3", nil},
		{"--forget-older-than 1ns --keep-runs 1", []string{"a", "b"}},
		{"--max-bytes 1g", nil},
		{"--max-bytes 1", []string{"a", "b", "c"}},
		{"--max-bytes 1 --keep-runs 2", []string{"a"}},
	} {
		report := r.gc(strings.Fields(c.args)...)
		if got := names(report); !slices.Equal(got, c.want) ||
			len(got) > 0 && (report.Forgotten[0].Forgotten || report.Forgotten[0].Bytes == 0) {
			t.Errorf("%s: %+v, want %v", c.args, report.Forgotten, c.want)
		}
		if !maps.Equal(r.objects(), before) {
			t.Fatalf("%s: a dry run changed the store", c.args)
		}
	}
	dry := r.gc("--forget-older-than", "1ns", "--keep-runs", "1")
	report := r.gc("--forget-older-than", "1ns", "--keep-runs", "1", "--delete")
	if !slices.Equal(names(report), []string{"a", "b"}) || !report.Forgotten[1].Forgotten {
		t.Errorf("%+v", report.Forgotten)
	}
	for i, kind := range report.Kinds {
		if kind.Unreachable != dry.Kinds[i].Unreachable || kind.Deleted != kind.Unreachable {
			t.Errorf("%s: deleted %d, and the dry run said %d", kind.Kind, kind.Deleted, dry.Kinds[i].Unreachable)
		}
	}
	after := r.objects()
	for key, want := range map[string]bool{own.Key: false, trajectory: false, shared.Key: true,
		keptOwn.Key: true, keptTrajectory: true} {
		if _, there := after[key]; there != want {
			t.Errorf("%s: there %t, want %t", key, there, want)
		}
	}
	for key := range after {
		if strings.HasPrefix(key, "runs/a/") || strings.HasPrefix(key, "runs/b/") {
			t.Errorf("%s is left", key)
		}
	}
	if now := r.audit("first") + r.audit("c"); now != audits {
		t.Errorf("the audits say\n%s\nand before\n%s", now, audits)
	}
	if again := r.gc("--forget-older-than", "1ns", "--keep-runs", "1", "--delete"); len(again.Forgotten) != 0 ||
		again.Kinds[0].Unreachable != 0 {
		t.Errorf("a second time: %+v", again)
	}
	if _, err := r.Log.Segments(t.Context(), "a"); !errors.Is(err, eventlog.ErrForgotten) {
		t.Errorf("segments of a forgotten run: %v", err)
	}
	if runs, err := r.Log.AllRuns(t.Context()); err != nil || !slices.Equal(runs, []string{"c", "closed", "first"}) {
		t.Errorf("the runs are %v, %v", runs, err)
	}
	for _, run := range []string{"first", "closed", "nobody"} {
		if err := r.Log.Appender.ForgetRun(t.Context(), run, "by mistake"); err == nil {
			t.Errorf("run %s was forgotten", run)
		}
	}
	for args, want := range map[string]string{"--forget-older-than 0s": "positive",
		"--keep-runs 3": "beside --forget-older-than", "--keep-runs -1 --max-bytes 1g": "at least 0"} {
		if output, err := clitest.Run(t, New, append([]string{"gc", "--dir", r.Dir},
			strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", args, err, output)
		}
	}
}

// TestGCIsKilledAfterItForgot: a run that is recorded as forgotten while its objects are there
// loses them to the next gc, without another word.
func TestGCIsKilledAfterItForgot(t *testing.T) {
	r := &stored{clitest.NewRecorded(t)}
	own, _ := r.archivedRun("a", servicetest.Blob(t, r.Log.Store(), []byte("shared")))
	r.age()
	if err := r.Log.Appender.ForgetRun(t.Context(), "a", "closed long ago"); err != nil {
		t.Fatal(err)
	}
	r.gc("--delete")
	for key := range r.objects() {
		if strings.HasPrefix(key, "runs/a/") || key == own.Key {
			t.Errorf("%s is left", key)
		}
	}
	if output, err := clitest.Run(t, New, "gc", "--dir", r.Dir); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestGCRetentionFile: a file of retention is what a plane would do. Runs stay that others continue
// or replay, and so do open ones.
func TestGCRetentionFile(t *testing.T) {
	r := &stored{clitest.NewRecorded(t)}
	shared := servicetest.Blob(t, r.Log.Store(), []byte("shared"))
	for _, run := range []string{"a", "continued", "replayed", "b"} {
		r.archivedRun(run, shared)
	}
	cfg := servicetest.Config("fix-a")
	for name, opened := range map[string]events.RunOpened{"next": {Config: cfg,
		Continues: &events.Continued{Run: "continued"}},
		"again": {Config: cfg, Replays: &events.Replayed{Run: "replayed"}}} {
		if err := r.Log.Streams.EnsureRun(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for _, on := range []string{name, events.Catalogue} {
			servicetest.Append(t, r.Log, servicetest.Event(t, on, events.RunOpenedType, name, "0", opened))
		}
	}
	r.age()
	file := filepath.Join(t.TempDir(), "retention.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("retention: {streams: 1ns, archives: 1ns, keep_runs: 1}\n")
	for _, args := range [][]string{{"--retention", file}, {"--retention", file, "--delete"}} {
		report := r.gc(args...)
		if got := names(report); !slices.Equal(got, []string{"a"}) || report.Forgotten[0].Forgotten != report.Deletes {
			t.Errorf("%v: %+v", args, report.Forgotten)
		}
		if len(report.Runs) > 0 {
			t.Errorf("%v: streams of open runs: %+v", args, report.Runs)
		}
	}
	for text, want := range map[string]string{
		"retention: {every: 1s, streams: 1h}":   "every 1s: must be at least 1m",
		"retention: {objects: 1m, streams: 1h}": "objects 1m0s", "retention: {}": "name at least one",
		"retention: {keep_runs: 3, streams: 1h}": "beside archives or max_bytes",
		"retention: {weights: 1m}":               "weights 1m0s", "retention: {stream: 1h}": "stream",
		"other: 1": "other", "": "no retention",
		"retention: {streams: -1h}": "must be positive", "retention: {weights: 48h, keep_weights: 1}": "keep_weights 1",
	} {
		write(text)
		if output, err := clitest.Run(t, New, "gc", "--dir", r.Dir, "--retention", file); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", text, err, output)
		}
	}
	if _, err := clitest.Run(t, New, "gc", "--dir", r.Dir, "--retention", file, "--keep-runs", "2"); err == nil {
		t.Error("a file and flags are taken together")
	}
}
