package generator

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// startAgent hands a rollout of a run with an agent to the tool runners. Whoever starts the agent
// records its turns and ends its episode.
func startAgent(cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) ([]events.Event, error) {
	if len(r.Calls) > 0 {
		return nil, nil
	}
	fact, err := r.Next(events.WorkspaceCalledType, events.AgentCall, events.WorkspaceCalled{Op: events.WorkspaceAgent})
	fact.Route = runfile.PoolRoute(cfg.Pool, task.Needs())
	return []events.Event{fact}, err
}
