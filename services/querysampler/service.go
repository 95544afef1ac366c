package querysampler

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
)

// Run is the service: it folds the run and emits group_opened, rollout_started, rollout_failed{deadline,
// cancelled}, run_paused and run_closed.
func Run(ctx context.Context, env runtime.Env) error {
	return runtime.RunDeciding(ctx, env, runtime.Deciding{Name: events.QuerySampler, New: Deciders})
}

// Deciders makes the run's one decider.
func Deciders(run string, cfg events.RunConfig) (map[string]runtime.Decider, error) {
	return map[string]runtime.Decider{"": NewDecider(run, cfg)}, nil
}
