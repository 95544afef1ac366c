package advantagecalculator

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
)

// Run is the service: it consumes group_opened, rollout_scored, rollout_failed and rollout_invalidated, and
// emits group_completed.
func Run(ctx context.Context, env runtime.Env) error {
	return runtime.RunDeciding(ctx, env, runtime.Deciding{Name: events.AdvantageCalculator, New: Deciders})
}

// Deciders makes the run's one decider.
func Deciders(run string, cfg events.RunConfig) (map[string]runtime.Decider, error) {
	d, err := NewDecider(run, cfg)
	if err != nil {
		return nil, err
	}
	return map[string]runtime.Decider{"": d}, nil
}
