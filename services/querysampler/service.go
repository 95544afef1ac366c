package querysampler

import (
	"context"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// Run is the service: it folds the run and emits group_opened, rollout_started,
// rollout_failed{deadline, cancelled}, run_paused and run_closed.
func Run(ctx context.Context, env pipeline.Env) error {
	w, err := newWatcher(env)
	if err != nil {
		return err
	}
	return pipeline.RunDeciding(ctx, env, pipeline.Deciding{Name: topology.QuerySampler, New: Deciders, Watch: w})
}

// Deciders makes the run's one decider.
func Deciders(run string, cfg runfile.RunConfig) (map[string]pipeline.Decider, error) {
	return map[string]pipeline.Decider{"": NewDecider(run, cfg)}, nil
}
