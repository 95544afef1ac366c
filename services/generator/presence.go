package generator

import (
	"strings"

	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// report is what the generator says of the inference servers that it asks.
func report(servers *fleet.Fleet, instance string, slots int) presence.Report {
	states, waiting := servers.Look()
	r := presence.Report{Instance: instance, Slots: slots, Waiting: waiting}
	for _, s := range states[:min(len(states), presence.MaxServers)] {
		state := presence.Active
		switch {
		case s.Open:
			state = presence.Open
		case s.Resting:
			state = presence.Rests
		}
		r.Servers = append(r.Servers, presence.Server{
			URL: s.URL, State: state, Engine: s.Engine, InFlight: s.InFlight, Allowed: s.Allowed, Versions: s.Versions,
			Failures: s.Failures, Reduced: s.Reduced,
			Away: strings.ToValidUTF8(s.Away[:min(len(s.Away), presence.MaxAway)], ""), Used: s.Used.UTC(),
		})
	}
	return r
}
