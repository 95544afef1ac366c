package replay

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// scoredRun is a recorded run of four rollouts: scored, without a verdict, cancelled after its end,
// and scored by an outsider.
func scoredRun(t *testing.T) (*eventlog.Log, runfile.RunConfig, map[string]eventlog.Ended) {
	t.Helper()
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	for id, outcome := range map[string]any{
		"g000001-0": events.RolloutScored{Reward: 0.25, Components: map[string]float64{"reward": 0.25, "style": 3}},
		"g000001-1": events.RolloutFailed{Stage: events.StageScorer, Class: events.ClassVerifier},
		"g000001-2": events.RolloutFailed{Stage: events.StageSampler, Class: events.ClassCancelled},
		"x1-0":      events.RolloutScored{Reward: 0.75},
	} {
		servicetest.StartRollout(t, log, "r", id, "a")
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, id,
			"0", events.RolloutFinished{Task: "a"}))
		typ := events.RolloutScoredType
		if _, failed := outcome.(events.RolloutFailed); failed {
			typ = events.RolloutFailedType
		}
		e := servicetest.Event(t, "r", typ, id, "0", outcome)
		if e.Source = topology.Scorer; events.External(id) {
			e.Source = "outside/scorer"
		}
		servicetest.Append(t, log, e)
	}
	ended := map[string]eventlog.Ended{}
	for r, err := range log.Rollouts(t.Context(), "r") {
		if err != nil {
			t.Fatal(err)
		}
		ended[r.ID] = r
	}
	cfg, err := log.Config(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	return log, cfg, ended
}

func TestRecomposed(t *testing.T) {
	_, _, ended := scoredRun(t)
	again := recomposed("new", runfile.Scoring{Weights: map[string]float64{"style": 2}})
	for id, want := range map[string]float64{"g000001-0": 6, "g000001-1": -1, "g000001-2": -1, "x1-0": -1} {
		fact, err := again(t.Context(), ended[id].Outcome)
		if err != nil || (fact == nil) != (want < 0) {
			t.Errorf("%s: %v, %v", id, fact, err)
			continue
		}
		if fact == nil {
			continue // the recorded one is copied
		}
		if s := servicetest.Data[events.RolloutScored](t, *fact); fact.Run != "new" || fact.Entity != id ||
			s.Reward != want || s.Components["reward"] != 0.25 {
			t.Errorf("%s: %+v %+v", id, fact, s)
		}
	}
	// A rollout without a component that has a weight has no reward, as it
	// would have had none live.
	fact, err := recomposed("new", runfile.Scoring{Weights: map[string]float64{"tests": 2}})(t.Context(),
		ended["g000001-0"].Outcome)
	if err != nil || fact.Type != events.RolloutFailedType {
		t.Fatalf("%v, %v", fact, err)
	}
	if f := servicetest.Data[events.RolloutFailed](t, *fact); f.Stage != events.StageScorer ||
		f.Class != events.ClassVerifier || !strings.Contains(f.Message, `"tests"`) {
		t.Errorf("%+v", f)
	}
}

func TestCheckComponents(t *testing.T) {
	log, _, _ := scoredRun(t)
	for name, wrong := range map[string]bool{"reward": false, "style": false, "stile": true} {
		err := CheckComponents(t.Context(), log.Reader, "r", runfile.Scoring{Weights: map[string]float64{name: 1}})
		if wrong != errors.Is(err, runfile.ErrNoComponent) || !wrong && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRescore verifies what the scorer scored, or should have, and nothing that a replay has stated
// before it was interrupted.
func TestRescore(t *testing.T) {
	log, cfg, ended := scoredRun(t)
	for id, verified := range map[string]bool{"g000001-0": true, "g000001-1": true, "g000001-2": false, "x1-0": false} {
		fact, err := rescore(t.Context(), log.Reader, scorer.Options{}, "new", cfg, ended[id])
		if fact != nil || errors.Is(err, storage.ErrNotFound) != verified { // the tests are not in the store
			t.Errorf("%s: %v, %v", id, fact, err)
		}
	}
	servicetest.OpenRun(t, log, "new", cfg)
	for _, id := range []string{"g000001-0", "g000001-1"} {
		servicetest.StartRollout(t, log, "new", id, "a")
		stated := servicetest.Append(t, log, servicetest.Event(t, "new", events.RolloutScoredType, id,
			"0", events.RolloutScored{Reward: 0.125}))
		if fact, err := rescore(t.Context(), log.Reader, scorer.Options{}, "new", cfg, ended[id]); err != nil ||
			fact.ID != stated.ID || string(fact.Data) != string(stated.Data) {
			t.Errorf("%s: %+v, %v", id, fact, err)
		}
	}
}

func TestChosenRollouts(t *testing.T) {
	log, _, ended := scoredRun(t)
	for flag, want := range map[string]int{"": 4, "1": 1, "3": 3, "9": 4, "g000001-1": 1,
		"x1-0,g000001-2": 2, "x1-0,none": 1} {
		var values []string
		if flag != "" {
			values = strings.Split(flag, ",")
		}
		c, err := Choose(values)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for r, err := range c.filter(log.Rollouts(t.Context(), "r")) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.ID)
		}
		if len(got) != want || slices.ContainsFunc(got, func(id string) bool { return ended[id].ID == "" }) ||
			(len(c.missing()) > 0) != strings.Contains(flag, "none") {
			t.Errorf("%q: %v without %v", flag, got, c.missing())
		}
	}
	for _, flag := range []string{"0", "-3", "a.b", ""} {
		if c, err := Choose([]string{flag}); err == nil {
			t.Errorf("%q: %+v", flag, c)
		}
	}
}
