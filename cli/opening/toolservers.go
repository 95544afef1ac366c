package opening

import (
	"context"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/services/toolrunner"
)

// ListServers asks the servers of a run's tools what they offer, where the run file does not say
// it. Its tasks are in the store.
func ListServers(ctx context.Context, p *plane.Plane, run string, f *RunFile, s service.Settings) error {
	if len(f.Tools.Servers) == 0 {
		return nil
	}
	keys, err := service.ReadKeys(s.EndpointKeys)
	if err != nil {
		return err
	}
	opts := toolrunner.Options{Machine: s.Machine, Keys: keys}
	return toolrunner.ListTools(ctx, p.Store, opts, run, &f.RunConfig)
}

// AsListed gives a configuration the tools that its servers had when the run was opened,
// where it does not name them.
func AsListed(cfg *runfile.RunConfig, opened runfile.RunConfig) {
	servers := make([]toolset.Server, len(cfg.Tools.Servers))
	for i, server := range cfg.Tools.Servers {
		if len(server.Tools) == 0 && i < len(opened.Tools.Servers) && opened.Tools.Servers[i].Name == server.Name {
			server.Tools = opened.Tools.Servers[i].Tools
		}
		servers[i] = server
	}
	if len(servers) > 0 {
		cfg.Tools.Servers = servers
	}
}
