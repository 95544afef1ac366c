package trainerfeeder

import (
	"context"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// Run is the service: it folds groups and rollouts with what is said about them, the facts of its
// feeds' batches and weights_published, and emits batch_ready and group_dropped.
func Run(ctx context.Context, env pipeline.Env) error {
	store := env.Log.Store()
	return pipeline.RunDeciding(ctx, env, pipeline.Deciding{
		Name: topology.TrainerFeeder,
		New: func(run string, cfg runfile.RunConfig) (map[string]pipeline.Decider, error) {
			return Deciders(run, cfg, store), nil
		},
	})
}

// Deciders makes one decider per feed of the run.
func Deciders(run string, cfg runfile.RunConfig, store storage.Store) map[string]pipeline.Decider {
	deciders := map[string]pipeline.Decider{}
	for _, feed := range cfg.Feeds {
		deciders[feed.Name] = NewDecider(run, cfg, feed, store)
	}
	return deciders
}
