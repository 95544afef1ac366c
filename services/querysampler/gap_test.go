package querysampler

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// TestGapsThatCount: which gaps of the trainer's log-probabilities pause a run, as a pure
// function of what was stated.
func TestGapsThatCount(t *testing.T) {
	type stated struct {
		step int64
		mean float64 // NaN: without a gap
	}
	none, resume := math.NaN(), stated{step: -1}
	for name, c := range map[string]struct {
		limit  float64
		stated []stated
		over   int64 // the step that the run is paused for, 0 for none
	}{
		"without a limit":               {0, []stated{{1, 900}}, 0},
		"within the limit":              {0.5, []stated{{1, 0.01}, {2, 0.5}}, 0},
		"over the limit":                {0.5, []stated{{1, 0.01}, {2, 0.51}}, 2},
		"never measured":                {0.5, []stated{{1, none}, {2, none}}, 0},
		"measured later":                {0.5, []stated{{1, none}, {1, 0.7}}, 1},
		"a trainer that was killed":     {0.5, []stated{{1, 0.7}, resume, {1, 0.7}}, 0},
		"another value for that step":   {0.5, []stated{{1, 0.7}, resume, {1, 9}}, 0},
		"back behind that step":         {0.5, []stated{{4, 0.7}, resume, {3, 0.7}, {4, 0.7}}, 0},
		"the next step":                 {0.5, []stated{{1, 0.7}, resume, {1, 0.7}, {2, 0.7}}, 2},
		"well first, then badly":        {0.5, []stated{{1, 0.1}, {1, 0.7}}, 1},
		"badly twice before the resume": {0.5, []stated{{1, 0.7}, {2, 0.8}, resume}, 0},
		"the latest step is named":      {0.5, []stated{{1, 0.7}, {2, 0.8}}, 2},
		"mended":                        {0.5, []stated{{1, 0.7}, resume, {2, 0.01}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var g gapped
			for _, s := range c.stated {
				switch {
				case s == resume:
					g.resumed()
				case math.IsNaN(s.mean):
					g.note(s.step, nil, c.limit)
				default:
					g.note(s.step, &events.LogprobGap{MeanAbs: s.mean, MaxAbs: s.mean, Tokens: 10}, c.limit)
				}
			}
			over := int64(0)
			if g.Over != nil {
				over = g.Step
			}
			if over != c.over {
				t.Errorf("paused for step %d, want %d: %+v", over, c.over, g)
			}
		})
	}
}

// TestGapPausesTheRun: of the first feed alone, with a reason that says what to check, and not
// again for the same step.
func TestGapPausesTheRun(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Limits.LogprobGap = 0.5 })
	opened(l)
	l.Settle()
	consumed := func(feed string, step int64, mean float64) []events.Event {
		l.Happen(events.BatchConsumedType, feed, events.BatchConsumed{Step: step,
			LogprobGap: &events.LogprobGap{MeanAbs: mean, MaxAbs: 8.25, KL: 1.5, Tokens: 77}})
		return l.Settle()
	}
	if facts := consumed("second", 1, 3); len(facts) != 0 {
		t.Fatalf("another feed's trainer pauses the run: %v", decidertest.Names(facts))
	}
	if facts := consumed("trainer", 1, 0.02); len(facts) != 0 {
		t.Fatalf("a small gap: %v", decidertest.Names(facts))
	}
	facts := consumed("trainer", 2, 1.25)
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"run.paused r"}) {
		t.Fatalf("a large gap: %v", got)
	}
	paused := decidertest.Data[events.RunPaused](t, facts[0])
	for _, part := range []string{
		"step 2", "1.25 nats", "77 tokens", "limits.logprob_gap 0.5", "largest 8.25", "KL 1.5",
		"weights", "temperature", "rondo doctor --endpoint", "kernels", "rondo run resume r",
	} {
		if !strings.Contains(paused.Reason, part) {
			t.Errorf("the reason %q does not say %q", paused.Reason, part)
		}
	}
	if paused.Class != events.PauseLogprobGap || len(paused.Reason)+64 >= 1000 {
		t.Errorf("class %q, a reason of %d bytes", paused.Class, len(paused.Reason))
	}
	if facts := consumed("trainer", 3, 4); len(facts) != 0 {
		t.Errorf("while it is paused: %v", decidertest.Names(facts))
	}
	l.Happen(events.RunResumedType, testRun, events.RunResumed{})
	completed(l, "g000001", true, true) // room for another group
	if got := openedGroups(l.Settle()); len(got) == 0 {
		t.Error("resumed it opens no groups")
	}
	if facts := consumed("trainer", 3, 4); len(facts) != 0 {
		t.Errorf("resumed, and the same step again: %v", decidertest.Names(facts))
	}
	again := consumed("trainer", 4, 4)
	if len(again) != 1 || again[0].Type != events.RunPausedType || again[0].ID == facts[0].ID {
		t.Errorf("the next step: %v", decidertest.Names(again))
	}
}

// TestGapWithoutALimit: a run that has none folds nothing of it, as runs from before did.
func TestGapWithoutALimit(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	l.Happen(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: 1,
		LogprobGap: &events.LogprobGap{MeanAbs: 1e6, MaxAbs: 1e6, Tokens: 1}})
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("%v", decidertest.Names(facts))
	}
}
