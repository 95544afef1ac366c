package toolrunner

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/redact"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/wording"
)

// way is a rollout's way to the network; nil is none.
type way struct {
	gateway *egress.Gateway
	session egress.Session
	alone   bool // to a model, and nothing else
}

// wayOut is what a rollout of a task may reach; nil where the run or the task wants nothing.
func wayOut(gateway *egress.Gateway, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) *way {
	if cfg.Network == nil || len(cfg.Network.Allow) == 0 || task.Network != nil && len(task.Network.Allow) == 0 {
		return nil
	}
	session := egress.Session{Run: r.Run, Network: cfg.Network, Task: task.Network}
	for _, done := range r.Tools {
		if done.Network != nil {
			session.Used += done.Network.Received + done.Network.Sent
		}
	}
	for _, answer := range r.Answers {
		if answer.Network != nil {
			session.Used += answer.Network.Received + answer.Network.Sent
		}
	}
	return &way{gateway: gateway, session: session}
}

// toModel is the way of an agent: to its model, and where the run allows more, there too.
func (w *way) toModel(gateway *egress.Gateway, model http.Handler, run string) *way {
	to := &way{gateway: gateway, session: egress.Session{Run: run, Network: &netaccess.Network{}}, alone: w == nil}
	if w != nil {
		to.session = w.session
	}
	to.session.Model = model
	return to
}

// replayed is the way of a rollout that runs again: to what the run has kept.
func (w *way) replayed(r *events.Rollout) *way {
	if w == nil {
		return nil
	}
	session := w.session
	session.Replay, session.Used, session.Refused = true, 0, map[string]string{}
	for _, done := range r.Tools {
		if done.Network == nil {
			continue
		}
		for _, fetch := range done.Network.Fetches {
			if fetch.Refused != "" {
				session.Refused[fetch.URL] = fetch.Refused
			}
		}
	}
	return &way{gateway: w.gateway, session: session}
}

// describe gives a sandbox the way, and its programs the settings to find it.
func (w *way) describe(spec *sandbox.Spec) {
	if w == nil {
		return
	}
	spec.Proxy = true
	if w.alone {
		return
	}
	maps.Copy(spec.Env, egress.Env(sandbox.ProxyAddress,
		func(registry string) bool { return w.gateway.Registry(w.session, registry) }))
}

// serve opens the way of a sandbox; nil, which can be closed, without one.
func (w *way) serve(sb *sandbox.Sandbox) *egress.Proxy {
	if w == nil {
		return nil
	}
	return w.gateway.Serve(sb.ProxyListener(), w.session)
}

// fetched is what a rollout's programs asked of the network since the turn before, without secrets
// where the run wants that.
func fetched(ctx context.Context, cfg runfile.RunConfig, proxy *egress.Proxy) (*netaccess.Use, error) {
	if proxy == nil {
		return nil, nil
	}
	mask := wording.Clean
	if cfg.Has(runfile.FeatureRedactSecrets) {
		mask = func(text string) string {
			found, err := redact.Find(ctx, text)
			if err != nil {
				return events.Unsearched
			}
			return wording.Clean(redact.Mask(text, found))
		}
	}
	use, err := proxy.Take(ctx, mask)
	if err != nil {
		return nil, fmt.Errorf("list what was fetched: %w", err)
	}
	return use, nil
}
