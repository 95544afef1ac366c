package scorer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRewardDifferences tells runs whose rewards follow from what stands beside and before them
// from runs in which they do not.
func TestRewardDifferences(t *testing.T) {
	half := 0.5
	fact := func(typ events.Type, id, source string, data any) events.Event {
		e := servicetest.Event(t, "r", typ, id, "0", data)
		e.Source = source
		return e
	}
	started := fact(events.RolloutStartedType, rollout, "querysampler/", events.RolloutStarted{})
	given := func(reward float64) events.Event {
		return fact(events.FeedbackRecordedType, rollout,
			"outside/web", events.FeedbackRecorded{Signal: events.SignalScore, Reward: &reward})
	}
	verified := func(source string, reward float64, components map[string]float64) events.Event {
		return fact(events.RolloutScoredType, rollout, source,
			events.RolloutScored{Reward: reward, Components: components})
	}
	byUser := func(reward, feedback float64) events.Event {
		return verified("scorer", reward, map[string]float64{"feedback": feedback})
	}
	pass := runfile.Scoring{Threshold: &half}
	withEffort := runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": -1},
		Effort: &runfile.Effort{Turns: 1, Half: 4}}
	for name, c := range map[string]struct {
		scoring runfile.Scoring
		log     []events.Event
		want    string // field of the only difference, and what comes out
	}{
		"a verdict": {runfile.Scoring{},
			[]events.Event{started, verified("scorer", 0.75, map[string]float64{"reward": 0.75})}, ""},
		"another reward": {runfile.Scoring{},
			[]events.Event{started, verified("scorer", 0.5, map[string]float64{"reward": 0.75})}, "reward 0.5 → 0.75"},
		"a threshold": {pass, []events.Event{started,
			verified("scorer", 1, map[string]float64{"reward": 0.75})}, ""},
		"a threshold that was ignored": {pass, []events.Event{started,
			verified("scorer", 0.75, map[string]float64{"reward": 0.75})}, "reward 0.75 → 1"},
		"a copied verdict": {pass, []events.Event{started,
			verified("replay/replay/scorer", 0.75, map[string]float64{"reward": 0.75})}, "reward 0.75 → 1"},
		"effort": {withEffort,
			[]events.Event{started, verified("scorer", 0.5,
				map[string]float64{"reward": 1, "effort": 0.5, "effort.turns": 4})}, ""},
		"another effort": {withEffort,
			[]events.Event{started, verified("scorer", 0.75,
				map[string]float64{"reward": 1, "effort": 0.25, "effort.turns": 4})}, "components.effort 0.25 → 0.5"},
		"no components": {runfile.Scoring{},
			[]events.Event{started, verified("scorer", 0.75, nil)}, "reward 0.75 → none"},
		"an outsider's": {pass, []events.Event{started, verified("outside/scorer", 0.75, nil)},
			""},
		"an outsider's own sum": {pass, []events.Event{started,
			verified("replay/outside/scorer", 0.75, map[string]float64{"reward": 0})}, ""},
		"feedback": {runfile.Scoring{},
			[]events.Event{started, given(0.25), byUser(0.25, 0.25)}, ""},
		"feedback with a threshold": {pass, []events.Event{started, given(0.75), byUser(1, 0.75)}, ""},
		"feedback that was changed meanwhile": {runfile.Scoring{},
			[]events.Event{started, given(0.25), given(1), byUser(0.25, 0.25)}, ""},
		"feedback that nobody gave": {runfile.Scoring{},
			[]events.Event{started, given(1), byUser(0.25, 0.25)}, "components.feedback 0.25 → one of [1]"},
		"feedback that came later": {runfile.Scoring{},
			[]events.Event{started, byUser(0.25, 0.25), given(0.25)}, "components.feedback 0.25 → one of []"},
		"a remark is no feedback": {runfile.Scoring{},
			[]events.Event{started, fact(events.FeedbackRecordedType, rollout,
				"outside", events.FeedbackRecorded{Signal: events.SignalFollow}), byUser(0, 0)},
			"components.feedback 0 → one of []"},
	} {
		t.Run(name, func(t *testing.T) {
			check := RewardDifferences(runfile.RunConfig{Scorer: c.scoring})
			var found []string
			for i, e := range c.log {
				e.Seq = uint64(i + 2)
				differences, err := check(e)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, d := range differences {
					if d.Event != e.ID || d.Sequence != e.Seq {
						t.Errorf("%s: %+v is not about %s", name, d, e.ID)
					}
					found = append(found, fmt.Sprintf("%s %s → %s", d.Field, d.Recorded, d.Recomputed))
				}
			}
			got := strings.Join(found, "; ")
			if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || len(found) > 1 {
				t.Errorf("%s: found %q, want %q", name, got, c.want)
			}
		})
	}
}

// TestRewardDifferencesForgets: what is remembered does not grow with the run.
func TestRewardDifferencesForgets(t *testing.T) {
	c := &rewards{given: map[string][]float64{}}
	for i := range 100 {
		id := events.RolloutID(events.GroupID(int64(i)), 0)
		outcome := servicetest.Event(t, "r", events.RolloutFailedType, id, "0", events.RolloutFailed{})
		if i%2 == 0 {
			outcome = servicetest.Event(t, "r", events.RolloutScoredType, id, "0", events.RolloutScored{})
		}
		accept := events.FeedbackRecorded{Signal: events.SignalAccept}
		for _, e := range []events.Event{
			servicetest.Event(t, "r", events.RolloutStartedType, id, "0", events.RolloutStarted{}),
			servicetest.Event(t, "r", events.FeedbackRecordedType, id, "0", accept), outcome,
			servicetest.Event(t, "r", events.FeedbackRecordedType, id, "1", accept),
		} {
			if _, err := c.event(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(c.given) > 0 {
		t.Errorf("%d rollouts are remembered", len(c.given))
	}
}
