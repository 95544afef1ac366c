package generator

import (
	"context"
	"sync"
	"time"

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
	slots map[string]int       // by name
	heard map[string]time.Time // last
}

func newPeers(name string, slots int) *peers {
	return &peers{name: name, slots: map[string]int{name: slots}, heard: map[string]time.Time{}}
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
