package opening

import (
	"context"
	"fmt"
	"maps"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/storage"
)

// TakeAgent names the layer of the run's agent by its digest, whatever the run file
// calls it, and takes from the layer's profile what the run file does not say: the
// command, and variables and settings.
func (f *RunFile) TakeAgent(ctx context.Context, store storage.Store) error {
	if f.Agent == nil || f.Agent.Layer == "" {
		return nil
	}
	layer, err := agents.Find(ctx, store, f.Agent.Layer)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	agent := *f.Agent
	agent.Layer = layer.Digest
	if len(agent.Command) == 0 {
		agent.Command = layer.Profile.Command
	}
	agent.Env, agent.Files = mergeEntries(layer.Profile.Env, agent.Env), mergeEntries(layer.Profile.Files, agent.Files)
	f.Agent = &agent
	return nil
}

// mergeEntries are the entries of a profile, and over them those of a run file.
func mergeEntries(profile, own map[string]string) map[string]string {
	all := maps.Clone(profile)
	if all == nil {
		return own
	}
	maps.Copy(all, own)
	return all
}
