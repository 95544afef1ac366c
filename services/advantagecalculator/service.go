package advantagecalculator

import (
	"context"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// Run is the service: it consumes group_opened, rollout_scored, rollout_failed and
// rollout_invalidated, and emits group_completed.
func Run(ctx context.Context, env pipeline.Env) error {
	return pipeline.RunDeciding(ctx, env, pipeline.Deciding{Name: topology.AdvantageCalculator, New: Deciders})
}

// Deciders makes the run's one decider.
func Deciders(run string, cfg runfile.RunConfig) (map[string]pipeline.Decider, error) {
	d, err := NewDecider(run, cfg)
	if err != nil {
		return nil, err
	}
	return map[string]pipeline.Decider{"": d}, nil
}
