package plane

import (
	"context"
	"hash/fnv"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// NullDigest is that of the tasks that the null scorer rates.
const NullDigest = "sha256:null"

// nullSlots is how many inputs the null scorer has in work at once.
const nullSlots = 64

// NullScorer answers at once. It consumes, appends and acknowledges as the real one does, with the
// same runtime, and starts no sandbox.
func NullScorer(ctx context.Context, env pipeline.Env) error {
	return pipeline.RunEffect(ctx, env, pipeline.Effect{
		Name: topology.Scorer, Slots: nullSlots,
		Handle: func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			r, err := m.Log.Rollout(ctx, m.Event.Run, m.Event.Entity)
			if err != nil || r.Over() || r.Finished == nil {
				return nil, err
			}
			scored := events.RolloutScored{Reward: reward(r.ID), TaskDigest: NullDigest,
				Trajectory: r.Finished.Trajectory, TextOnly: r.Finished.TextOnly}
			fact, err := r.Next(events.RolloutScoredType, "0", scored)
			return []events.Event{fact}, err
		},
	})
}

// reward is 0 or 1, by the rollout's name: groups have both.
func reward(rollout string) float64 {
	h := fnv.New32a()
	h.Write([]byte(rollout))
	return float64(h.Sum32() >> 7 & 1)
}
