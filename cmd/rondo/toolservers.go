package main

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/toolrunner"
)

// listServers asks the servers of a run's tools what they offer, where the run file does not say it. Its tasks are in the store.
func listServers(ctx context.Context, p *plane, run string, f *runFile, s settings) error {
	if len(f.Tools.Servers) == 0 {
		return nil
	}
	keys, err := readKeys(s.endpointKeys)
	if err != nil {
		return err
	}
	opts := toolrunner.Options{AllowInsecure: s.allowInsecure, ToolchainCache: s.toolchainCache, Keys: keys}
	return toolrunner.ListTools(ctx, p.store, opts, run, &f.RunConfig)
}

// asListed gives a configuration the tools that its servers had when the run was opened, where it does not name them.
func asListed(cfg *events.RunConfig, opened events.RunConfig) {
	servers := make([]events.ToolServer, len(cfg.Tools.Servers))
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
