package toolrunner

import (
	"context"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolserver"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/storage"
)

// sessions are a run's with its servers on behalf of a sandbox, nil for none, which
// then has no server inside.
func (o Options) sessions(sb *sandbox.Sandbox, run string) *toolserver.Sessions {
	keys := o.Keys.OfURLs()
	return toolserver.New(sb, func(url string) string { return keys.Key(run, url) })
}

// ListTools asks the servers of a run that is about to be opened for their tools, where its
// configuration has none of them: servers outside themselves, the others in a sandbox of the run's
// first task, whose snapshot is in the store.
func ListTools(ctx context.Context, store storage.Store, opts Options, run string, cfg *runfile.RunConfig) error {
	cfg.Tools.Servers = slices.Clone(cfg.Tools.Servers) // other runs may be opened by the same
	for i := range cfg.Tools.Servers {
		server := &cfg.Tools.Servers[i]
		if len(server.Tools) > 0 {
			continue
		}
		if err := runfile.CheckToolServer(*server); err != nil {
			return fmt.Errorf("tools.servers: %d (%.80q): %w", i, server.Name, err)
		}
		listed, err := listTools(ctx, store, opts, run, cfg.Tasks, *server)
		if err != nil {
			return fmt.Errorf("list the tools of a server: %w (where it cannot be asked, write down its tools in the run file)", err)
		}
		if err := runfile.ChooseTools(server, listed); err != nil {
			return err
		}
	}
	return nil
}

func listTools(ctx context.Context, store storage.Store, opts Options, run string, tasks []runfile.TaskSpec,
	server toolset.Server) ([]toolset.ServerTool, error) {
	var sb *sandbox.Sandbox
	if !server.IsRemote() {
		if len(tasks) == 0 {
			return nil, fmt.Errorf("server %s: no task of the run has a sandbox that can start it", server.Name)
		}
		var err error
		if sb, err = restore(ctx, store, opts, tasks[0], "tools", nil, nil); err != nil {
			return nil, fmt.Errorf("server %s: %w", server.Name, err)
		}
		defer sb.Close()
	}
	sessions := opts.sessions(sb, run)
	defer sessions.Close()
	return sessions.List(ctx, server)
}
