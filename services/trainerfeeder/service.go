package trainerfeeder

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/storage"
)

// Run is the service: it folds groups and rollouts with what is said about them, the facts of its feeds' batches and
// weights_published, and emits batch_ready and group_dropped.
func Run(ctx context.Context, env runtime.Env) error {
	store := env.Log.Store()
	return runtime.RunDeciding(ctx, env, runtime.Deciding{
		Name: events.TrainerFeeder,
		New: func(run string, cfg events.RunConfig) (map[string]runtime.Decider, error) {
			return Deciders(run, cfg, store), nil
		},
	})
}

// Deciders makes one decider per feed of the run.
func Deciders(run string, cfg events.RunConfig, store storage.Store) map[string]runtime.Decider {
	deciders := map[string]runtime.Decider{}
	for _, feed := range cfg.Feeds {
		deciders[feed.Name] = NewDecider(run, cfg, feed, store)
	}
	return deciders
}
