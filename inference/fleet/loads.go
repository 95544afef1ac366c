package fleet

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// Times of looks at servers' metrics.
const (
	// loadFor is how long what a server says holds: runs that ask the same servers read it once.
	loadFor = time.Second
	// loadTimeout bounds one look.
	loadTimeout = time.Second
	// noLoadFor is how long a server is not asked again that says nothing of its load, or is away
	// when it is asked for its slots.
	noLoadFor = time.Minute
)

// loaded is what a server has said of its load.
type loaded struct {
	load *inference.Load // nil: nothing
	at   time.Time       // of the latest look
	read time.Time       // when the load was said
}

// stale reports whether the latest look failed, so that the load is that of an earlier one.
func (l loaded) stale() bool { return l.read.Before(l.at) }

// Servers are the servers of a run, with what they say of their load. first reports whether this
// process is the one that looks, of its peers; the others get nothing.
func (f *Fleet) Servers(ctx context.Context, run string, cfg *runfile.RunConfig) (servers []Server, first bool) {
	peers, first := f.Peers()
	if !first {
		return nil, false
	}
	for _, e := range cfg.Servers() {
		base := e.URL
		if base == runfile.BuiltinEndpoint {
			base = f.opts.Builtin
		}
		base = strings.TrimRight(base, "/")
		f.mu.Lock()
		r := f.replicas[base]
		s := Server{URL: e.URL, Slots: e.Slots}
		if s.Slots == 0 {
			s.Slots = f.opts.Slots
		}
		s.Slots *= peers
		s.Allowed = s.Slots
		if r != nil {
			s.Allowed, s.Limited = int(r.allowed)*peers, r.limited()
		}
		f.mu.Unlock()
		l := f.load(ctx, base, f.opts.Keys.Key(run, base))
		s.Load, s.Stale = l.load, l.stale()
		servers = append(servers, s)
	}
	return servers, len(servers) > 0
}

// load is what a server says of its load. One that has said it, and does not answer now, may be
// busy: what it said holds for noLoadFor.
func (f *Fleet) load(ctx context.Context, base, key string) loaded {
	f.mu.Lock()
	l := f.loads[base]
	f.mu.Unlock()
	rests := loadFor
	if l.load == nil {
		rests = noLoadFor
	}
	if !l.at.IsZero() && time.Since(l.at) < rests {
		return l
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	client := inference.Client{HTTP: f.http, APIKey: key}
	l.at = time.Now()
	if said, err := client.Load(ctx, base); err == nil {
		l.load, l.read = &said, l.at
	} else if l.at.Sub(l.read) >= noLoadFor {
		l.load = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.loads) >= maxReplicas {
		clear(f.loads)
	}
	f.loads[base] = l
	return l
}

// askSlots asks servers how many requests they sample at once whose first ramp keeps a call
// waiting. The caller holds the lock.
func (f *Fleet) askSlots(ctx context.Context, among []target, now time.Time) {
	for _, t := range among {
		if !now.Before(t.slotsAsk) && t.setbacks == 0 && t.current >= int(t.allowed) && t.allowed < float64(t.slots) {
			t.slotsAsk = now.Add(noLoadFor)
			go f.learnSlots(context.WithoutCancel(ctx), t)
		}
	}
}

// learnSlots lets a ramp begin with this process's part of what the server says. One that has
// failed meanwhile has shown less.
func (f *Fleet) learnSlots(ctx context.Context, at target) {
	ctx, cancel := context.WithTimeout(ctx, contextTime)
	defer cancel()
	client := inference.Client{HTTP: f.http, APIKey: at.key}
	slots, err := client.Slots(ctx, at.url)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if err == nil {
		at.slotsAsk = now.Add(math.MaxInt64) // it has said all
	}
	if slots == 0 || at.setbacks > 0 {
		return
	}
	at.raise(float64(max(1, slots/f.peers)), at.slots)
	f.opts.Logger.Info("inference server slots", "endpoint", withoutPassword(at.url), "slots", slots,
		"generators", f.peers, "allowed", int(at.allowed))
	f.serve(now)
}
