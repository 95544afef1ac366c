package scorer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// RewardDifferences checks rewards against what the log says they are made of. The function that it
// gives is to be fed every event of a run in order. Each reward that the scorer stated must follow
// from the components beside it, and a user's reward must have been given before. It remembers
// rollouts in flight only.
//
// Feedback that came last need not be the one that counts: it may have reached the log while the
// scorer, which had read the one before, stated the reward.
func RewardDifferences(cfg runfile.RunConfig) func(e events.Event) ([]pipeline.Difference, error) {
	c := &rewards{scoring: cfg.Scorer, tasks: cfg, given: map[string][]float64{}, stages: map[string]*staged{}}
	return c.event
}

// rewards is what is known of the rewards of rollouts in flight.
type rewards struct {
	scoring runfile.Scoring
	tasks   runfile.RunConfig
	given   map[string][]float64 // by users, by rollout
	stages  map[string]*staged   // by rollout
}

// staged is a rollout of a task with several stages, and their verdicts until now.
type staged struct {
	task   runfile.TaskSpec
	ended  []events.EndedStep
	source string // of the verdicts
}

func (c *rewards) event(e events.Event) ([]pipeline.Difference, error) {
	switch e.Type {
	case events.RolloutStartedType:
		c.given[e.Entity] = nil
		return nil, c.started(e)
	case events.StepScoredType:
		return nil, c.stage(e)
	case events.FeedbackRecordedType:
		return nil, c.feedback(e)
	case events.RolloutFailedType:
		c.forget(e.Entity)
	case events.RolloutScoredType:
		defer c.forget(e.Entity)
		if pipeline.OriginalSource(e) == topology.Scorer {
			return c.scored(e)
		}
	}
	return nil, nil
}

func (c *rewards) forget(rollout string) {
	delete(c.given, rollout)
	delete(c.stages, rollout)
}

func (c *rewards) started(e events.Event) error {
	started, err := events.Data[events.RolloutStarted](e)
	if task, unknown := c.tasks.Task(started.Task); unknown == nil && len(task.Steps) > 0 {
		c.stages[e.Entity] = &staged{task: task}
	}
	return err
}

func (c *rewards) stage(e events.Event) error {
	verdict, err := events.Data[events.StepScored](e)
	if s := c.stages[e.Entity]; s != nil {
		s.ended, s.source = append(s.ended, events.EndedStep{StepFinished: events.StepFinished{Step: verdict.Step},
			Verdict: &verdict}), e.Source
	}
	return err
}

// composed compares the components of a rollout with what the verdicts on its stages
// make of them. A replay that scored with other tests has copied the verdicts on stages:
// there is nothing to compare.
func (c *rewards) composed(e events.Event, scored events.RolloutScored,
	differs func(field, recorded, recomputed string)) {
	s := c.stages[e.Entity]
	if s == nil || s.source != e.Source {
		return
	}
	components, err := events.ComposeSteps(s.task, s.ended)
	if err != nil {
		differs("components", "given", "none: "+err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(components)) {
		if recorded, now := component(scored.Components, name), number(components[name]); recorded != now {
			differs("components."+name, recorded, now)
		}
	}
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

func (c *rewards) scored(e events.Event) (found []pipeline.Difference, err error) {
	scored, err := events.Data[events.RolloutScored](e)
	if err != nil {
		return nil, err
	}
	differs := func(field, recorded, recomputed string) {
		found = append(found, pipeline.Difference{Event: e.ID, Sequence: e.Seq, Field: field, Recorded: recorded,
			Recomputed: recomputed})
	}
	c.composed(e, scored, differs)
	compose := c.scoring.Reward
	if scored.Forfeit != nil {
		compose = c.scoring.Forfeited
	}
	reward, err := compose(scored.Components)
	switch {
	case err != nil:
		differs("reward", number(scored.Reward), "none: "+err.Error())
	case reward != scored.Reward:
		differs("reward", number(scored.Reward), number(reward))
	}
	if derived := c.scoring.Derive(
		scored.Components)[runfile.EffortComponent]; derived != scored.Components[runfile.EffortComponent] {
		differs("components."+runfile.EffortComponent,
			number(scored.Components[runfile.EffortComponent]), number(derived))
	}
	if feedback, ok := scored.Components[runfile.FeedbackComponent]; ok && len(scored.Components) == 1 &&
		!slices.Contains(c.given[e.Entity], feedback) {
		differs("components.feedback", number(feedback),
			fmt.Sprintf("one of %v, which users gave before", c.given[e.Entity]))
	}
	return found, nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
