package replay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// history is how long a run becomes.
type history struct {
	size  runfile.Size // of its stream
	text  int          // bytes of a turn's text
	turns int          // of a rollout
	times int          // its stream's size
}

// TestReplayManyTimesItsStream: a run whose history is many times as long as its stream is audited,
// decided again and made again as a new run of that size, and comes out as one of which nothing has
// left the stream. RONDO_LONG_HISTORY=96 makes it 6 GiB on 64 MiB.
func TestReplayManyTimesItsStream(t *testing.T) {
	h := history{size: 512 << 10, text: 12 << 10, turns: 6, times: 4}
	if times, err := strconv.Atoi(os.Getenv("RONDO_LONG_HISTORY")); err == nil {
		h = history{size: 64 << 20, text: 96 << 10, turns: 40, times: times}
	}
	r := clitest.NewRecordedWith(t, func(cfg *runfile.RunConfig) {
		cfg.Log, cfg.Staleness.Max = runfile.Log{MaxBytes: h.size, Keep: runfile.KeepOpen}, 10_000
	}, clitest.Deciding...)
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	kept := cfg
	kept.Log = runfile.Log{MaxBytes: 4 * runfile.Size(h.times) * h.size}
	servicetest.OpenRun(t, r.Log, "kept", kept)
	whole := *r
	whole.Run = "kept"

	bytes := 0
	for n := 1; bytes < h.times*int(h.size); n++ {
		for _, run := range []*clitest.Recorded{r, &whole} {
			bytes += h.group(run, n) / 2 // of two runs
			for _, feed := range []string{"trainer", "shadow"} {
				waitFor(t, r.Log, run.Run, events.BatchReadyType, feed, events.Ordinal(int64(n)))
				run.Consumed(feed, int64(n))
			}
		}
		forgetEnded(t, r.Log, "first")
	}
	t.Logf("%d MiB of history on a stream of %s", bytes>>20, h.size)
	replay := Options{Run: "first", As: "again", Config: cfg}
	for _, dies := range []uint64{200, 350} {
		ctx, die := context.WithCancel(t.Context())
		replay.Progress = func(seq uint64) {
			if seq == dies {
				die()
			}
		}
		if _, err := As(ctx, r.Log, replay); !errors.Is(err, context.Canceled) {
			t.Fatalf("a replay that dies: %v", err)
		}
	}
	replay.Progress = nil
	if _, err := As(t.Context(), r.Log, replay); err != nil {
		t.Fatal(err)
	}
	want, decided := bookOf(t, r.Log, "kept")
	if decided[topology.TrainerFeeder+"/trainer"] == 0 || decided[topology.AdvantageCalculator] == 0 {
		t.Fatalf("decided again are %v", decided)
	}
	for _, run := range []string{"first", "again"} {
		got, checked := bookOf(t, r.Log, run)
		if !reflect.DeepEqual(got, want) || !maps.Equal(checked, decided) {
			t.Errorf("%s: %+v with %v decided again; of the run that kept all: %+v with %v", run,
				got, checked, want, decided)
		}
		if first, err := r.Log.Has(t.Context(), run, events.Event{Run: run, Type: events.RolloutStartedType,
			Entity: "g000001-0"}.Subject()); err != nil || first {
			t.Errorf("%s: the first rollout is on the stream: %v, %v", run, first, err)
		}
	}
}

// group lets a group run to its end, and gives about how many bytes that takes.
func (h history) group(r *clitest.Recorded, n int) (bytes int) {
	r.T.Helper()
	_, rollouts := r.Group(int64(n), "fix-a", 2, 0)
	for i, id := range rollouts {
		for turn := range h.turns {
			text := strings.Repeat(fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, id, turn))), h.text/64+1)
			sampled := events.TurnSampled{Turn: turn, Content: text,
				TokenIDs: []int32{int32(turn)}, FinishReason: "stop"}
			if turn < h.turns-1 {
				sampled.FinishReason, sampled.ToolCalls = "tool_calls",
					[]events.ToolCall{{ID: "c", Name: "run", Arguments: "{}"}}
			}
			r.State(events.TurnSampledType, id, events.Ordinal(turn), sampled)
			if turn < h.turns-1 {
				r.State(events.ToolsCompletedType, id, events.Ordinal(turn),
					events.ToolsCompleted{Turn: turn, Results: []events.ToolResult{{CallID: "c", Name: "run"}},
						Runner: "runner-1"})
			}
			bytes += len(text)
		}
		finished := servicetest.Finished(r.T, r.Log.Store(), r.Run, id, servicetest.Trajectory(r.Run, id, "fix-a"))
		finished.Turns = h.turns
		r.State(events.RolloutFinishedType, id, "0", finished)
		r.State(events.RolloutScoredType, id, "0", events.RolloutScored{Reward: float64(i), TaskDigest: "sha256:fix-a",
			Trajectory: finished.Trajectory})
	}
	return bytes
}

// waitFor waits for the last fact of a type; it reads no more than that.
func waitFor(t *testing.T, log *eventlog.Log, run string, typ events.Type, entity, ordinal string) {
	t.Helper()
	want := events.ID(run, typ, entity, ordinal)
	natstest.Eventually(t, want, func() bool {
		last, err := log.LastOfType(t.Context(), run, typ, entity)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil && last.ID == want
	})
}

// forgetEnded does what the archiver does when a stream fills up.
func forgetEnded(t *testing.T, log *eventlog.Log, run string) {
	t.Helper()
	fill, err := log.Fill(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if fill < eventlog.PurgeAt {
		return
	}
	if _, err := log.Appender.Seal(t.Context(), run, true); err != nil {
		t.Fatal(err)
	}
	if n, err := log.Archive.PurgeEnded(t.Context(), run); err != nil || n == 0 {
		t.Fatalf("%d rollouts left the stream of %s at %.2f: %v", n, run, fill, err)
	}
	fact, err := log.Archive.PurgedFact(t.Context(), run)
	if err == nil && fact != nil {
		_, _, err = log.Appender.Append(t.Context(), *fact)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bookOf audits a run and decides it again, and finds nothing wrong. What it gives counts nothing
// that says how the run is stored.
func bookOf(t *testing.T, log *eventlog.Log, run string) (audit.Report, map[string]int) {
	t.Helper()
	audited, err := audit.Check(t.Context(), log.Reader, run)
	if err != nil || len(audited.Findings) > 0 {
		t.Fatalf("%s: %+v, %v", run, audited.Findings, err)
	}
	verified, err := Verify(t.Context(), log.Reader, run, func(uint64) {})
	if err != nil || verified.Differences > 0 {
		t.Fatalf("%s: %+v, %v", run, verified, err)
	}
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.LogPurgedType || e.Type == events.RunClosedType { // a replay closes its run
			audited.Events--
		}
	}
	audited.Run = ""
	return audited, verified.Checked
}
