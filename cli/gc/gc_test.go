package gc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/cli/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// stored is a recorded plane whose objects are looked at.
type stored struct{ *clitest.Recorded }

// objects are the sizes of all objects by key.
func (r *stored) objects() map[string]int64 {
	r.T.Helper()
	all := map[string]int64{}
	for info, err := range r.Log.Store().List(r.T.Context(), "") {
		if err != nil {
			r.T.Fatal(err)
		}
		all[info.Key] = info.Size
	}
	return all
}

// age makes all objects two days old.
func (r *stored) age() {
	r.T.Helper()
	before := time.Now().Add(-48 * time.Hour)
	for key := range r.objects() {
		if err := os.Chtimes(filepath.Join(r.Dir, "objects", key), before, before); err != nil {
			r.T.Fatal(err)
		}
	}
}

func (r *stored) put(key, content string) string {
	r.T.Helper()
	if err := r.Log.Store().Put(r.T.Context(), key, []byte(content)); err != nil {
		r.T.Fatal(err)
	}
	return key
}

func (r *stored) gc(args ...string) (report gc.Report) {
	r.T.Helper()
	output, err := clitest.Run(r.T, New, append([]string{"gc", "--dir", r.Dir, "--json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(output), &report)
	}
	if err != nil {
		r.T.Fatalf("gc %v: %v\n%s", args, err, output)
	}
	return report
}

func (r *stored) audit(run string) string {
	output, err := clitest.Run(r.T, audit.New, "audit", run, "--dir", r.Dir, "--json")
	return fmt.Sprintf("%v %s", err, output)
}

// orphans plants an unreachable object of every kind.
func (r *stored) orphans() []string {
	return []string{
		servicetest.Blob(r.T, r.Log.Store(), []byte("nobody's")).Key,
		r.put("runs/first/trajectories/g000009-0-0123456789abcdef.arrow", "crashed"),
		r.put("runs/first/batches/trainer/000000000009-0123456789abcdef.arrow", "crashed"),
		r.put("runs/first/log/000000000001-000000000002-0123456789abcdef.arrow", "lost the race"),
		r.put("weights/small/v000009/model-0123456789abcdef.safetensors", "never listed"),
		r.put("index/0123456789abcdef0123456789abcdef/segments/0123", "lost the race"),
		r.put("runs/first/tools/0123", "an answer that nobody asks for any more"),
	}
}

// everything fills a plane with an object of every kind that is reached in every way that there is.
func everything(t *testing.T) *stored {
	r := &stored{clitest.NewRecorded(t, advantagecalculator.Run, trainerfeeder.Run)}
	store := r.Log.Store()
	r.Whole(1, "fix-a", 0, 0, 1)
	r.Batch("trainer", 1)
	workspace := servicetest.Blob(t, store, []byte("a change"))
	_, ids := r.Group(2, "fix-b", 1, 0)
	// a body of its own
	r.State(events.TurnSampledType, ids[0], "0", events.TurnSampled{Content: strings.Repeat("big ", events.MaxPayload/4+
		1), ToolCalls: []events.ToolCall{{Name: "x"}}})
	r.State(events.ToolsCompletedType, ids[0], "0", events.ToolsCompleted{Workspace: &workspace})

	// An outsider's trajectory names a workspace that no fact does.
	r.State(events.GroupOpenedType, "xmine", "0", events.GroupOpened{Task: "fix-a", Size: 1})
	r.State(events.RolloutStartedType, "xmine-0", "0", events.RolloutStarted{Group: "xmine", Task: "fix-a"})
	foreign := servicetest.Trajectory("first", "xmine-0", "fix-a")
	foreign.Messages[1].Workspace = servicetest.Blob(t, store, []byte("an outsider's change")).Key
	finished := servicetest.Finished(t, store, "first", "xmine-0", foreign)
	finished.StopReason = strings.Repeat("long ", events.MaxPayload/4) // a body of its own, too
	r.State(events.RolloutFinishedType, "xmine-0", "0", finished)

	body := servicetest.Blob(t, store, []byte("refused"))
	servicetest.Append(t, r.Log, servicetest.Event(t, events.Catalogue, events.DeadLetteredType, "RONDO_IN-1",
		"0", events.DeadLettered{Body: &body}))
	var tensors bytes.Buffer
	if err := safetensors.Write(&tensors, []safetensors.Data{safetensors.NewF32("w", []int64{1}, []float32{1})},
		nil); err != nil {
		t.Fatal(err)
	}
	if _, err := weights.Publish(t.Context(), store, "small", 3,
		weights.Content{Name: "model.safetensors", Data: tensors.Bytes()}); err != nil {
		t.Fatal(err)
	}

	r.put("weights/small/v000003/delta.json",
		fmt.Sprintf(`{"base":2,"base_manifest":%q,"ref":"weights/small/v000003/from-v000002.rondodelta","sha256":%q,"size":1}`,
			body.SHA256, body.SHA256))
	r.put("weights/small/v000003/from-v000002.rondodelta", "-")

	// The intake has not taken this yet.
	waiting := servicetest.Blob(t, store, []byte("feedback, "+strings.Repeat("large ", events.MaxPayload/6)))
	text, _ := json.Marshal(map[string]any{"text": waiting})
	if _, err := r.Log.JetStream().Publish(t.Context(),
		events.IntakeSubject("first", events.RolloutAnnotatedType, "xmine-0"), text); err != nil {
		t.Fatal(err)
	}

	// An index that was updated once: its first tree is still found by its root.
	keys, tree := segmenttest.Key(1), segmenttest.Tree{"a.go": {"func:A one"}, "b.go": {"func:B two"}}
	base, err := segment.Load(t.Context(), store, keys, "repository", nil)
	for _, next := range []segmenttest.Tree{tree, {"a.go": {"func:A one"}, "b.go": {"func:B three"}}} {
		if err == nil {
			base, err = base.Commit(t.Context(), next.Change(keys, nil))
		}
	}
	if err != nil {
		t.Fatal(err)
	}

	// A run of which only the archive is left.
	cfg := servicetest.Config("fix-c")
	cfg.Tasks[0].Snapshot, cfg.Tasks[0].Tests = servicetest.Blob(t, store, []byte("snapshot of the past")),
		servicetest.Blob(t, store, []byte("tests of the past"))
	servicetest.OpenRun(t, r.Log, "past", cfg)
	servicetest.CloseRun(t, r.Log, "past")
	if _, err := r.Log.Appender.Seal(t.Context(), "past", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "past"); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGC: of objects of every kind exactly those go that nothing reaches and that are old.
func TestGC(t *testing.T) {
	r := everything(t)
	reached := r.objects()
	orphans := r.orphans()
	r.put("index/of-a-later-version", "unknown")
	r.age()
	young := servicetest.Blob(t, r.Log.Store(), []byte("on its way to the log")).Key
	before, audits := r.objects(), r.audit("first")+r.audit("past")

	dry := r.gc("--list")
	if r.checkKinds(dry, 1, 0); !maps.Equal(r.objects(), before) {
		t.Error("a dry run changed the store")
	}
	var listed []string
	for _, o := range dry.Objects {
		listed = append(listed, o.Key)
	}
	if want := slices.Sorted(slices.Values(orphans)); !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
	r.checkKinds(r.gc("--delete"), 1, 1)
	after := r.objects()
	for _, key := range orphans {
		if _, there := after[key]; there {
			t.Errorf("%s is still there", key)
		}
	}
	for key := range reached {
		if _, there := after[key]; !there {
			t.Errorf("%s is gone", key)
		}
	}
	if _, there := after[young]; !there || len(after) != len(before)-len(orphans) {
		t.Errorf("%d objects are left of %d", len(after), len(before))
	}
	if now := r.audit("first") + r.audit("past"); now != audits {
		t.Errorf("the audits say\n%s\nand before\n%s", now, audits)
	}
	r.checkKinds(r.gc("--delete"), 0, 0)
	if output, err := clitest.Run(t, New, "gc", "--dir", r.Dir); err != nil ||
		!strings.Contains(output, "0 objects (0 bytes) that nothing refers to, older than 24h0m0s\n") {
		t.Errorf("%v\n%s", err, output)
	}
}

func (r *stored) checkKinds(report gc.Report, unreachable, deleted int64) {
	r.T.Helper()
	for _, k := range report.Kinds {
		want := [3]int64{unreachable, deleted, 0}
		switch k.Kind {
		case "blobs":
			want[2] = 1
		case "other", "agents":
			want = [3]int64{}
		}
		if got := [3]int64{k.Unreachable, k.Deleted, k.Young}; got != want ||
			k.Objects == 0 && k.Kind != "tool answers" && k.Kind != "agents" {
			r.T.Errorf("%s: %+v, want %v", k.Kind, k, want)
		}
	}
}

// TestGCOfAHistoryThatIsNotWhole: as long as nobody can say what a run needs, nothing goes.
func TestGCOfAHistoryThatIsNotWhole(t *testing.T) {
	refuses := func(r *stored, want ...string) {
		t.Helper()
		r.age()
		before := r.objects()
		output, err := clitest.Run(t, New, "gc", "--delete", "--dir", r.Dir)
		for _, part := range append(want, "nothing is deleted") {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q\n%s", err, part, output)
			}
		}
		if !maps.Equal(r.objects(), before) {
			t.Error("something was deleted")
		}
	}
	t.Run("a body is lost", func(t *testing.T) {
		r := &stored{clitest.NewRecorded(t)}
		r.orphans()
		_, ids := r.Group(1, "fix-a", 1, 0)
		known := r.objects()
		r.State(events.TurnSampledType, ids[0], "0", events.TurnSampled{Content: strings.Repeat("big ",
			events.MaxPayload/4+1)})
		for key := range r.objects() {
			if _, before := known[key]; !before {
				r.Log.Store().Delete(t.Context(), key)
			}
		}
		refuses(r, "run first", "--abandon first")
	})
	t.Run("a segment is damaged", func(t *testing.T) {
		r := everything(t)
		sealed, err := r.Log.Segments(t.Context(), "past")
		if err != nil {
			t.Fatal(err)
		}
		r.put(sealed[0].Segment.Key, "noise")
		refuses(r, "run past")
	})
	t.Run("a stream has a gap", func(t *testing.T) {
		r := &stored{clitest.NewRecorded(t)}
		stream, err := r.Log.JetStream().CreateStream(t.Context(),
			jetstream.StreamConfig{Name: events.RunStream("gappy"),
				Subjects: topology.Stream(events.RunStream("gappy")).Subjects, AllowDirect: true})
		if err != nil {
			t.Fatal(err)
		}
		servicetest.OpenRun(t, r.Log, "gappy", servicetest.Config("fix-a"))
		servicetest.StartRollout(t, r.Log, "gappy", "g000001-0", "fix-a")
		servicetest.StartRollout(t, r.Log, "gappy", "g000001-1", "fix-a")
		for _, seq := range []uint64{2, 3} { // in the middle, and at the end
			if err := stream.DeleteMsg(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
			refuses(r, "run gappy", eventlog.ErrGap.Error())
		}
	})
	t.Run("a manifest is damaged", func(t *testing.T) {
		r := everything(t)
		r.put(weights.ManifestKey("small", 3), "{}")
		refuses(r, "policy small, version 3")
	})
	t.Run("the runs of another server", func(t *testing.T) {
		r := everything(t)
		foreign := r.put("runs/theirs/trajectories/g000001-0-0123456789abcdef.arrow", "theirs")
		refuses(r, "run theirs", "another server")
		if output, err := clitest.Run(t, New, "gc", "--delete", "--abandon", "first", "--dir", r.Dir); err == nil ||
			!strings.Contains(err.Error(), "its history is whole") {
			t.Errorf("a healthy run was given up: %v\n%s", err, output)
		}
		before := r.objects()
		if report := r.gc("--delete", "--abandon", "theirs"); report.Kinds[1].Deleted != 1 {
			t.Errorf("%+v", report)
		}
		if after := r.objects(); after[foreign] != 0 || len(after) != len(before)-1 {
			t.Errorf("%d objects of %d are left", len(after), len(before))
		}
	})
}

// TestGCWithoutACatalogue: a new server over an old store spares what the archives there reach.
func TestGCWithoutACatalogue(t *testing.T) {
	old := everything(t)
	if _, err := old.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	old.age()
	fresh := clitest.FilledPlane(t, nil)
	output, err := clitest.Run(t, New, "gc", "--dir", fresh,
		"--store", filepath.Join(old.Dir, "objects"), "--json", "--list")
	var report gc.Report
	if err == nil {
		err = json.Unmarshal([]byte(output), &report)
	}
	// The submission and the dead letter, were in the lost streams.
	if err != nil || len(report.Objects) != 2 || report.Kinds[0].Unreachable != 2 {
		t.Errorf("%v: %s", err, output)
	}
}

func TestGCOfOldRuns(t *testing.T) {
	r := &stored{clitest.NewRecorded(t)}
	for _, run := range []string{"archived", "unsealed"} {
		servicetest.OpenRun(t, r.Log, run, servicetest.Config("fix-a"))
		servicetest.CloseRun(t, r.Log, run)
	}
	if _, err := r.Log.Appender.Seal(t.Context(), "archived", true); err != nil {
		t.Fatal(err)
	}
	streams := func() []string {
		runs, err := r.Log.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(slices.Values(runs))
	}
	if report := r.gc("--runs-older-than", "24h", "--delete"); len(report.Runs) != 0 || len(streams()) != 3 {
		t.Errorf("young runs: %+v, %v", report.Runs, streams())
	}
	check := func(report gc.Report, deleted bool) {
		t.Helper()
		if len(report.Runs) != 2 || report.Runs[0].Run != "archived" || report.Runs[0].Deleted != deleted ||
			report.Runs[0].Kept != "" ||
			report.Runs[1].Run != "unsealed" || report.Runs[1].Deleted ||
			!strings.Contains(report.Runs[1].Kept, "archive seal unsealed") {
			t.Errorf("%+v", report.Runs)
		}
	}
	check(r.gc("--runs-older-than", "1ns"), false)
	if len(streams()) != 3 {
		t.Errorf("a dry run left %v", streams())
	}
	check(r.gc("--runs-older-than", "1ns", "--delete"), true)
	if got := streams(); !slices.Equal(got, []string{"first", "unsealed"}) {
		t.Errorf("streams of %v are left", got)
	}
	for _, c := range []struct{ args, want string }{{"--older-than 1h", "at least 2h"},
		{"--runs-older-than 0s", "positive"}} {
		if output, err := clitest.Run(t, New, append([]string{"gc", "--dir", r.Dir},
			strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, output)
		}
	}
}
