package scorer

import (
	"maps"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// withWorkers adds to components what the rollout's environment and the run's reward function say.
// What is said last counts: the function's word.
func withWorkers(components map[string]float64, r *events.Rollout) map[string]float64 {
	all := maps.Clone(components)
	if all == nil {
		all = map[string]float64{}
	}
	if len(r.Observed) > 0 {
		maps.Copy(all, r.ObservedComponents(runfile.RewardComponent))
	}
	if r.Rated != nil {
		maps.Copy(all, r.Rated.Components)
	}
	return all
}

// byWorkers states the reward of a rollout that has no tests, or nothing that they could look at.
func byWorkers(cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) ([]events.Event, error) {
	components := withWorkers(nil, r)
	if cfg.Scorer.Effort != nil {
		measureEffort(r, components)
	}
	components = cfg.Scorer.Derive(components)
	reward, err := cfg.Scorer.Reward(components)
	if err != nil {
		fact, err := r.Fail(events.StageScorer, events.ClassVerifier,
			&verifier.Error{Class: verifier.ClassBadReward, Err: err})
		return []events.Event{fact}, err
	}
	scored := events.RolloutScored{Reward: reward, Components: components, TaskDigest: task.Digest,
		Trajectory: r.Finished.Trajectory, TextOnly: r.Finished.TextOnly}
	if r.Rated != nil {
		scored.DurationMS = r.Rated.DurationMS
	}
	fact, err := r.Next(events.RolloutScoredType, "0", scored)
	return []events.Event{fact}, err
}
