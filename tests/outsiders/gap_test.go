package outsiders

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestLogprobGapPausesARun: a trainer that is far from the sampler pauses its run. A batch that it
// takes twice counts once, so a resumed run goes on until the next one.
func TestLogprobGapPausesARun(t *testing.T) {
	cfg := servicetest.Config()
	cfg.External, cfg.Endpoint, cfg.Limits.LogprobGap = true, "", 0.5
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	p := newPlane(t, cfg)
	batch := func(group string, step int) {
		t.Helper()
		p.open(group, "theirs", enough, enough)
		p.score(group+"-0", "theirs", 1)
		p.score(group+"-1", "theirs", 0)
		if b := p.batch(step); b.Sampled != 6 {
			t.Fatalf("batch %+v", b)
		}
	}
	consumed := func(step int64, mean float64) {
		t.Helper()
		p.must(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: step,
			LogprobGap: &events.LogprobGap{MeanAbs: mean, MaxAbs: 2 * mean, KL: mean, Tokens: 6}})
	}
	paused := func(n int) events.RunPaused {
		t.Helper()
		return servicetest.Data[events.RunPaused](t, servicetest.Wait(t, p.log, "r", events.RunPausedType, "r", n)[n-1])
	}

	batch("x1", 1)
	// taken; the gap is measured a little later
	p.must(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: 1})
	consumed(1, 0.9)
	if first := paused(1); first.Class != events.PauseLogprobGap || !strings.Contains(first.Reason, "at step 1") {
		t.Errorf("paused as %+v", first)
	}
	if err := p.submit(events.GroupOpenedType, "x2", events.GroupOpened{Task: "theirs", Size: 1}); err == nil ||
		!strings.Contains(err.Error(), "run r is paused") {
		t.Errorf("a group in the paused run: %v", err)
	}
	consumed(1, 0.9)
	p.must(events.RunResumedType, "r", events.RunResumed{})
	// the trainer was killed, and takes the batch again
	p.must(events.BatchRewoundType, "trainer", events.BatchRewound{ToStep: 0})
	consumed(1, 0.9)
	batch("x3", 2)
	consumed(2, 0.01)
	batch("x4", 3)
	consumed(3, 4)
	// the second pause of all: step 1 has caused one
	if second := paused(2); !strings.Contains(second.Reason, "at step 3") {
		t.Errorf("paused as %+v", second)
	}
	p.prove()
}
