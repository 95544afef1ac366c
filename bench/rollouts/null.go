package rollouts

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// The null tool runner answers at once. It consumes, appends and acknowledges as the real one does,
// with the same runtime, and starts no sandbox.

// nullSlots is how many inputs it has in work at once.
const nullSlots = 64

// runner is the name of the null tool runner.
const runner = "bench"

func nullTools(ctx context.Context, env pipeline.Env) error {
	return pipeline.RunEffect(ctx, env, pipeline.Effect{
		Name: topology.ToolRunner, Slots: nullSlots,
		Routes: func(context.Context, string) []string {
			return []string{runfile.PoolRoute(runfile.DefaultRunConfig().Pool, runfile.Needs{}),
				runfile.RunnerRoute(runner, runfile.Needs{})}
		},
		Handle: func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			r, err := m.Log.Rollout(ctx, m.Event.Run, m.Event.Entity)
			if err != nil || r.Over() || r.Finished != nil || !r.AwaitsTools() {
				return nil, err
			}
			last := r.LastTurn()
			done := events.ToolsCompleted{Turn: last.Turn, Runner: runner, Isolation: "none", Filesystem: "none"}
			for _, call := range last.ToolCalls {
				done.Results = append(done.Results, events.ToolResult{CallID: call.ID, Name: call.Name,
					Content: "nothing", StartedAt: m.Time})
			}
			fact, err := r.Next(events.ToolsCompletedType, events.Ordinal(done.Turn), done)
			return []events.Event{fact}, err
		},
	})
}
