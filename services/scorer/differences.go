package scorer

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
)

// RewardDifferences checks rewards against what the log says they are made of. The function that it gives is to be fed every event of a
// run in order. Each reward that the scorer stated must follow from the components beside it, and a user's reward must have been given
// before. It remembers rollouts in flight only.
//
// Feedback that came last need not be the one that counts: it may have reached the log while the scorer, which had read the one
// before, stated the reward.
func RewardDifferences(cfg events.RunConfig) func(e events.Event) ([]runtime.Difference, error) {
	c := &rewards{scoring: cfg.Scorer, given: map[string][]float64{}}
	return c.event
}

// rewards is what is known of the rewards of rollouts in flight.
type rewards struct {
	scoring events.Scoring
	given   map[string][]float64 // by users, by rollout
}

func (c *rewards) event(e events.Event) ([]runtime.Difference, error) {
	switch e.Type {
	case events.RolloutStartedType:
		c.given[e.Entity] = nil
	case events.FeedbackRecordedType:
		return nil, c.feedback(e)
	case events.RolloutFailedType:
		delete(c.given, e.Entity)
	case events.RolloutScoredType:
		defer delete(c.given, e.Entity)
		if runtime.OriginalSource(e) == events.Scorer {
			return c.scored(e)
		}
	}
	return nil, nil
}

func (c *rewards) feedback(e events.Event) error {
	given, inFlight := c.given[e.Entity]
	if !inFlight {
		return nil
	}
	f, err := events.Data[events.FeedbackRecorded](e)
	if reward, ok := f.Score(); err == nil && ok && !slices.Contains(given, reward) {
		c.given[e.Entity] = append(given, reward)
	}
	return err
}

func (c *rewards) scored(e events.Event) (found []runtime.Difference, err error) {
	scored, err := events.Data[events.RolloutScored](e)
	if err != nil {
		return nil, err
	}
	differs := func(field, recorded, recomputed string) {
		found = append(found, runtime.Difference{Event: e.ID, Sequence: e.Seq, Field: field, Recorded: recorded, Recomputed: recomputed})
	}
	reward, err := c.scoring.Reward(scored.Components)
	switch {
	case err != nil:
		differs("reward", number(scored.Reward), "none: "+err.Error())
	case reward != scored.Reward:
		differs("reward", number(scored.Reward), number(reward))
	}
	if derived := c.scoring.Derive(scored.Components)[events.EffortComponent]; derived != scored.Components[events.EffortComponent] {
		differs("components."+events.EffortComponent, number(scored.Components[events.EffortComponent]), number(derived))
	}
	if feedback, ok := scored.Components[events.FeedbackComponent]; ok && len(scored.Components) == 1 && !slices.Contains(c.given[e.Entity], feedback) {
		differs("components.feedback", number(feedback), fmt.Sprintf("one of %v, which users gave before", c.given[e.Entity]))
	}
	return found, nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
