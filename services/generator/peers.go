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
	name string // of this one

	mu    sync.Mutex
	began time.Time
	told  map[string]bool      // runs that need more slots than there are, which was said
	slots map[string]int       // by name
	heard map[string]time.Time // last
}

func newPeers(name string, slots int) *peers {
	return &peers{name: name, began: time.Now(), told: map[string]bool{}, slots: map[string]int{name: slots}, heard: map[string]time.Time{}}
}

// take notes what a generator says of itself.
func (p *peers) take(r presence.Report, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.slots[r.Name]; known || len(p.slots) < maxPeers {
		p.slots[r.Name], p.heard[r.Name] = r.Slots, now
	}
}

// count counts the generators that are present and their slots. first reports whether this one is the first of them by name.
func (p *peers) count(now time.Time) (n, slots int, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = true
	for name, has := range p.slots {
		if name != p.name && now.Sub(p.heard[name]) > presence.Gone {
			delete(p.slots, name)
			delete(p.heard, name)
			continue
		}
		n, slots, first = n+1, slots+has, first && p.name <= name
	}
	return n, slots, first
}

// follow keeps the fleet told how many generators ask the same servers, until the context ends.
func (p *peers) follow(ctx context.Context, env pipeline.Env, servers *fleet.Fleet) {
	stop, err := presence.HearService(env.Log.Conn(), topology.Generator, func(r presence.Report) {
		p.take(r, time.Now())
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

// short reports, once, that a run keeps more rollouts under way than the generators have slots. It does not before each of them had the time to speak.
func (p *peers) short(run string, atOnce int, now time.Time) (n, slots int, short bool) {
	n, slots, first := p.count(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.began) < presence.Gone || !first {
		return n, slots, false
	}
	short = atOnce > slots && !p.told[run]
	if len(p.told) >= maxPeers {
		clear(p.told)
	}
	p.told[run] = atOnce > slots
	return n, slots, short
}

// compareSlots says in the log where a run has more rollouts than the generators can sample at once.
func (s *Service) compareSlots(run string, cfg runfile.RunConfig, now time.Time) {
	if n, slots, short := s.peers.short(run, cfg.AtOnce(), now); short {
		s.logger.Warn("generator slots scarce", "run", run, "rollouts_at_once", cfg.AtOnce(), "slots", slots, "generators", n,
			"do", "start generators with more --generator-slots, or lower in_flight of the run")
	}
}
