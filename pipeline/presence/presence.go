// Package presence is what processes of the plane say of themselves to whoever shows it: which
// sandboxes they hold, and which inference servers they ask. It is said over core NATS every two
// seconds and kept nowhere. Nothing on the log follows from it: generators count each other by it.
package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

const (
	// Every is how often a process speaks.
	Every = 2 * time.Second
	// EndedAfter is when one that has not spoken is taken for ended.
	EndedAfter = 5 * Every
)

// Bounds of a report: it must fit a message, and whoever shows it shows no more.
const (
	MaxSandboxes = 256
	MaxServers   = 256
	maxReport    = 128 << 10
	maxText      = 256 // bytes of each
	MaxAway      = 64  // bytes of what is wrong with a server
	maxSlots     = 1 << 20
)

// Report is what one process says of one of its services.
type Report struct {
	Service  string    `json:"service"`
	Name     string    `json:"name"` // of the process among those of its service
	Instance string    `json:"instance"`
	Build    string    `json:"build"`
	Started  time.Time `json:"started"`
	Runner   *Runner   `json:"runner,omitempty"`
	// Slots is how many turns a generator samples at once.
	Slots int `json:"slots,omitempty"`
	// Servers are the inference servers that it asks; Waiting are calls that wait for one.
	Servers []Server `json:"servers,omitempty"`
	Waiting int      `json:"waiting,omitempty"`
	Mirror  *Mirror  `json:"mirror,omitempty"`
}

// MirrorService is the service of reports of mirrors.
const MirrorService = "mirror"

// Mirror is how far the copy of a policy's weights in another region is behind.
type Mirror struct {
	Policy   string  `json:"policy"`
	Region   string  `json:"region"`
	Current  int64   `json:"current"`  // version there, -1: none
	Versions int     `json:"versions"` // published behind it
	Seconds  float64 `json:"seconds"`  // since the first of them was published
}

// MirrorName is the name of who reports of a mirror.
func MirrorName(policy, region string) string { return policy + "." + Name(region) }

// Runner is a tool runner's part.
type Runner struct {
	Slots     int       `json:"slots"`    // turns that run at once
	Capacity  int       `json:"capacity"` // sandboxes that it holds between turns
	Working   int       `json:"working"`
	Held      int       `json:"held"`
	Sandboxes []Sandbox `json:"sandboxes"` // at most MaxSandboxes of them, those that work first
	CPUs      int       `json:"cpus"`
	MemoryMB  int       `json:"memory_mb,omitempty"`
	Labels    []string  `json:"labels,omitempty"`
}

// Sandbox is one that a runner has leased to a rollout.
type Sandbox struct {
	Run     string    `json:"run"`
	Rollout string    `json:"rollout"`
	Working bool      `json:"working,omitempty"` // a turn's calls run in it; else it waits for the next turn
	Since   time.Time `json:"since"`             // it works, or waits
}

// What a process thinks of an inference server.
const (
	Active = "asked"
	Rests  = "rests" // as it asked for
	Open   = "open"  // its requests have failed in a row, so it is left alone
)

// Server is an inference server as a process knows it.
type Server struct {
	URL      string           `json:"url"`
	State    string           `json:"state"`
	Engine   string           `json:"engine,omitempty"`
	InFlight int              `json:"in_flight"`
	Allowed  int              `json:"allowed"`            // requests at once
	Versions map[string]int64 `json:"versions,omitempty"` // that it served last, by policy
	Failures int              `json:"failures,omitempty"` // in a row
	Away     string           `json:"away,omitempty"`     // the last of them, where the server is away
	Reduced  string           `json:"reduced,omitempty"`  // why it gets fewer requests than before
	Used     time.Time        `json:"used"`
}

// Speak says what report gives until the context ends. Name must fit a subject.
func Speak(ctx context.Context, nc *nats.Conn, service, name string, report func() Report) {
	started, build, tick := time.Now().UTC(), buildOf(), time.NewTicker(Every)
	defer tick.Stop()
	for {
		r := report()
		r.Service, r.Name, r.Started, r.Build = service, name, started, build
		if body, err := json.Marshal(r); err == nil && len(body) <= maxReport {
			_ = nc.Publish(topology.PresenceSubject+service+"."+name, body) // the next one follows
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Name makes a name of a process that fits a subject.
func Name(instance string) string {
	return strings.Map(func(r rune) rune {
		if r < 128 && runfile.ValidToken(string(r)) {
			return r
		}
		return '-'
	}, instance)
}

// Hear hands over what all processes say, until stop is called. It may call heard from several
// goroutines. It skips reports that are malformed or too long.
func Hear(nc *nats.Conn, heard func(Report)) (stop func(), err error) {
	return hear(nc, heard, topology.PresenceSubject+"*.*", topology.MirrorSubject+"*.*")
}

// HearService hands over what the processes of one service say.
func HearService(nc *nats.Conn, service string, heard func(Report)) (stop func(), err error) {
	return hear(nc, heard, topology.PresenceSubject+service+".*")
}

func hear(nc *nats.Conn, heard func(Report), subjects ...string) (stop func(), err error) {
	take := func(m *nats.Msg) {
		var r Report
		if len(m.Data) > maxReport || json.Unmarshal(m.Data, &r) != nil || !r.fits(m.Subject) {
			return
		}
		heard(r)
	}
	var subs []*nats.Subscription
	stop = func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // it ends with its connection at the latest
		}
	}
	for _, subject := range subjects {
		sub, err := nc.Subscribe(subject, take)
		if err != nil {
			stop()
			return nil, fmt.Errorf("hear what processes say of themselves: %w", err)
		}
		subs = append(subs, sub)
	}
	return stop, nil
}

// fits reports whether a report is within its bounds, and of whom its subject says.
func (r *Report) fits(subject string) bool {
	if subject != topology.PresenceSubject+r.Service+"."+r.Name || len(r.Servers) > MaxServers || r.Slots < 0 ||
		r.Slots > maxSlots || r.Runner != nil && len(r.Runner.Sandboxes) > MaxSandboxes {
		return false
	}
	texts := []string{r.Instance, r.Build}
	if m := r.Mirror; m != nil {
		if r.Service != MirrorService || r.Name != MirrorName(m.Policy, m.Region) || m.Seconds < 0 || m.Versions < 0 {
			return false
		}
		texts = append(texts, m.Region)
	}
	for _, s := range r.Servers {
		texts = append(texts, s.URL, s.Engine, s.Reduced, s.Away)
	}
	for _, text := range texts {
		if len(text) > maxText {
			return false
		}
	}
	return true
}

// buildOf is the version of this program.
func buildOf() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return info.Main.Version
}
