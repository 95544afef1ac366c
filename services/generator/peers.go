package generator

import (
	"context"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// maxPeers bounds the generators that are counted.
const maxPeers = 4096

// peers are the generators that are present, with this one.
type peers struct {
	name   string // of this one
	slots  int    // of this one
	began  time.Time
	others *presence.Roster

	mu   sync.Mutex
	told map[string]bool // runs that need more slots than there are, which was said
}

func newPeers(name string, slots int) *peers {
	return &peers{name: name, slots: slots, began: time.Now(), others: presence.NewRoster(maxPeers),
		told: map[string]bool{}}
}

// count counts the generators that are present and their slots. first reports whether this one is
// the first of them by name.
func (p *peers) count(now time.Time) (n, slots int, first bool) {
	n, slots, first = 1, p.slots, true
	for _, other := range p.others.Present(now) {
		if other.Name != p.name {
			n, slots, first = n+1, slots+other.Slots, first && p.name < other.Name
		}
	}
	return n, slots, first
}

// follow keeps the fleet told how many generators ask the same servers, until the context ends.
func (p *peers) follow(ctx context.Context, env pipeline.Env, servers *fleet.Fleet) {
	stop, err := presence.HearService(env.Log.Conn(), topology.Generator, func(r presence.Report) {
		p.others.Take(r, time.Now())
		n, _, first := p.count(time.Now())
		servers.SetPeers(n, first)
	})
	if err != nil {
		env.Logger.Warn("other generators unknown", "error", err)
		return
	}
	defer stop()
	<-ctx.Done()
}

// short reports, once, that a run keeps more rollouts under way than the generators have slots. It
// does not before each of them had the time to speak.
func (p *peers) short(run string, atOnce int, now time.Time) (n, slots int, short bool) {
	n, slots, first := p.count(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.began) < presence.EndedAfter || !first {
		return n, slots, false
	}
	short = atOnce > slots && !p.told[run]
	if len(p.told) >= maxPeers {
		clear(p.told)
	}
	p.told[run] = atOnce > slots
	return n, slots, short
}

// compareSlots says in the log where a run has more rollouts than the
// generators can sample at once.
func (s *Service) compareSlots(run string, cfg runfile.RunConfig, now time.Time) {
	if n, slots, short := s.peers.short(run, cfg.AtOnce(), now); short {
		s.logger.Warn("generator slots scarce", "run", run, "rollouts_at_once", cfg.AtOnce(),
			"slots", slots, "generators", n,
			"do", "start generators with more --generator-slots, or lower in_flight of the run")
	}
}
