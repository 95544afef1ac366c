package rollouts

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// TestRun: every rollout passes every stage, in both runs, and the third holds as
// many as it is asked for.
func TestRun(t *testing.T) {
	o := Options{Rollouts: 64, Turns: 3, Tokens: 16, Open: 32, Dir: t.TempDir()}
	r, err := Run(t.Context(), o, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.RolloutsPerSecond <= 0 || r.EventsPerSecond < 7*r.RolloutsPerSecond || r.CPUPerRollout <= 0 ||
		r.OpenGiB <= 0 || r.OpenGiB100k != 0 || r.StoreWrites < 1 || r.StoreReads < 1 {
		t.Errorf("%+v", r)
	}
	want := map[string]int{toolsStage: 48 * 15, turnStage: 48 * 15, endStage: 48, scoreStage: 48, groupStage: 6}
	for _, s := range r.Stages {
		if s.Count != want[s.Name] || s.P50 > s.P99 {
			t.Errorf("%+v: want %d", s, want[s.Name])
		}
	}
	if r.Raw.Count == 0 || len(r.Stages) != len(want) {
		t.Errorf("%+v", r)
	}
}

// TestWatch: a stage's time is that between its events, less the model's.
func TestWatch(t *testing.T) {
	w, at := newWatch(10*time.Millisecond), time.Unix(0, 0)
	see := func(typ events.Type, entity string, ms int) {
		at = at.Add(time.Duration(ms) * time.Millisecond)
		w.see(events.Event{Type: typ, Entity: entity, Time: at})
	}
	const rollout = "g000001-0"
	see(events.RolloutStartedType, rollout, 0)
	see(events.TurnSampledType, rollout, 500) // no stage: when it began is the spread
	see(events.ToolsCompletedType, rollout, 3)
	see(events.TurnSampledType, rollout, 15)
	see(events.RolloutFinishedType, rollout, 7)
	see(events.RolloutScoredType, rollout, 4)
	see(events.GroupCompletedType, "g000001", 2)
	for i, want := range []float64{3, 5, 7, 4, 2} {
		if s := w.stages()[i]; s.P50 != want || s.Count != 1 {
			t.Errorf("%+v: want %v ms", s, want)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Rollouts: 10}, {Turns: 1}, {Tokens: 8}, {Open: -1}} {
		if _, err := Run(t.Context(), o, func(string) {}); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
