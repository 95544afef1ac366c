package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// maxProcesses bounds the processes that are remembered: of more, the one that was
// silent longest is left out.
const maxProcesses = 256

// hear listens until the context ends. A dashboard that may not listen shows nobody.
func hear(ctx context.Context, env pipeline.Env) *presence.Roster {
	present := presence.NewRoster(maxProcesses)
	stop, err := presence.Hear(env.Log.Conn(), func(r presence.Report) { present.Take(r, time.Now()) })
	if err != nil {
		env.Logger.Warn("fleet unknown", "error", err)
		return present
	}
	context.AfterFunc(ctx, stop)
	return present
}

// fleetView is what the page of the fleet shows.
type fleetView struct {
	Title, Here string
	Runners     []runnerView
	Servers     []serverView
	Waiting     int // calls that wait for a server
	Mirrors     []presence.Mirror
}

type runnerView struct {
	presence.Report
	Age       time.Duration
	Sandboxes []sandboxView
	More      int // sandboxes that are not listed
}

type sandboxView struct {
	presence.Sandbox
	For time.Duration
}

// serverView is an inference server: what the processes that ask it know, and what
// it said itself on the log.
type serverView struct {
	URL, State, Engine string
	InFlight, Allowed  int
	Failures           int
	Reduced            string // why it gets fewer requests than before
	Policies           []policyView
	Used               bool          // it was asked
	Idle               time.Duration // since then
	Asked              bool          // some process asks it
}

// policyView is the version of a policy that a server has.
type policyView struct {
	Name    string
	Version int64
	Behind  int64
	Lost    bool
	Age     time.Duration // since it said so, 0 where it has not
}

// fleetPage shows the sandboxes by tool runner and the inference servers, as they are now.
func (d *Dashboard) fleetPage(w http.ResponseWriter, r *http.Request) error {
	b, _, release, err := d.openCatalogue(r, 0)
	if err != nil {
		return err
	}
	defer release()
	now := time.Now()
	v := &fleetView{Title: "Fleet", Here: "fleet"}
	servers := map[string]*serverView{}
	at := func(url string) *serverView {
		if servers[url] == nil {
			servers[url] = &serverView{URL: url}
		}
		return servers[url]
	}
	for _, p := range d.fleet.Present(now) {
		v.Waiting += p.Waiting
		if p.Runner != nil {
			v.Runners = append(v.Runners, viewRunner(p.Report, now))
		}
		if p.Mirror != nil {
			v.Mirrors = append(v.Mirrors, *p.Mirror)
		}
		for _, s := range p.Servers {
			at(strings.TrimRight(s.URL, "/")).add(s, now)
		}
	}
	b.mu.Lock()
	for _, name := range b.state.names {
		policy := b.state.policies[name]
		for _, said := range policy.Replicas {
			s := at(strings.TrimRight(said.Name, "/"))
			s.Policies = slices.DeleteFunc(s.Policies, func(p policyView) bool { return p.Name == name })
			s.Policies = append(s.Policies, policyView{name, said.Version, 0, said.Lost,
				now.Sub(said.At).Truncate(time.Second)})
		}
	}
	for _, s := range servers {
		for i := range s.Policies {
			if policy := b.state.policies[s.Policies[i].Name]; policy != nil {
				s.Policies[i].Behind = max(0, policy.Current-s.Policies[i].Version)
			}
		}
	}
	b.mu.Unlock()
	for _, url := range slices.Sorted(maps.Keys(servers)) {
		v.Servers = append(v.Servers, *servers[url])
	}
	v.Servers = v.Servers[:min(len(v.Servers), maxServers)]
	return d.page(w, http.StatusOK, "fleet", v)
}

// maxServers bounds the servers on the page.
const maxServers = 500

// serversAway tells of those among a run's inference servers that are away, and of
// any where none are named.
func (d *Dashboard) serversAway(servers []runfile.Endpoint) (away []string) {
	for _, p := range d.fleet.Present(time.Now()) {
		for _, s := range p.Servers {
			asked := func(e runfile.Endpoint) bool {
				return strings.TrimRight(e.URL,
					"/") == strings.TrimRight(s.URL, "/")
			}
			if s.Away == "" || servers != nil && !slices.ContainsFunc(servers, asked) {
				continue
			}
			away = append(away,
				fmt.Sprintf("The inference server %s is away for %s: %d requests failed in a row, the last one: %s",
					s.URL, p.Name, s.Failures, s.Away))
		}
	}
	return away
}

// viewRunner is a tool runner as the page shows it.
func viewRunner(p presence.Report, now time.Time) runnerView {
	v := runnerView{Report: p, Age: now.Sub(p.Started).Truncate(time.Second),
		More: max(0, p.Runner.Working+p.Runner.Held-len(p.Runner.Sandboxes))}
	for _, s := range p.Runner.Sandboxes {
		v.Sandboxes = append(v.Sandboxes, sandboxView{s, max(0, now.Sub(s.Since)).Truncate(time.Second)})
	}
	return v
}

// add adds what one process knows of the server. The worst state counts.
func (v *serverView) add(s presence.Server, now time.Time) {
	worse := []string{"", presence.Active, presence.Rests, presence.Open}
	if slices.Index(worse, s.State) > slices.Index(worse, v.State) {
		v.State = s.State
	}
	if idle := max(0, now.Sub(s.Used)).Truncate(time.Second); !s.Used.IsZero() && (!v.Used || idle < v.Idle) {
		v.Used, v.Idle = true, idle
	}
	v.Asked, v.Engine = true, cmp.Or(v.Engine, s.Engine)
	v.InFlight, v.Allowed, v.Failures = v.InFlight+s.InFlight, v.Allowed+s.Allowed, max(v.Failures, s.Failures)
	v.Reduced = cmp.Or(v.Reduced, s.Reduced)
	for _, name := range slices.Sorted(maps.Keys(s.Versions)) {
		if !slices.ContainsFunc(v.Policies, func(p policyView) bool { return p.Name == name }) &&
			len(v.Policies) < maxPolicies {
			v.Policies = append(v.Policies, policyView{Name: name, Version: s.Versions[name]})
		}
	}
}

// Class is how the page colours the server.
func (v serverView) Class() string {
	switch {
	case v.State == presence.Open, slices.ContainsFunc(v.Policies, func(p policyView) bool { return p.Lost }):
		return "lost"
	case v.State == presence.Rests, slices.ContainsFunc(v.Policies, func(p policyView) bool { return p.Behind > 0 }):
		return "behind"
	}
	return "here"
}
