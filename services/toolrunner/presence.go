package toolrunner

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/pipeline/presence"
)

// work is which rollouts' calls run now.
type work struct {
	mu    sync.Mutex
	since map[string]time.Time // by run and rollout
}

func (w *work) begin(key string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since == nil {
		w.since = map[string]time.Time{}
	}
	w.since[key] = time.Now().UTC()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.since, key)
	}
}

// report is what the runner says of itself.
func (s *Service) report(instance string) presence.Report {
	r := &presence.Runner{
		Slots: s.opts.Slots, Capacity: cmp.Or(s.opts.Capacity, DefaultCapacity), CPUs: s.offer.cpus,
		MemoryMB: s.offer.memoryMB, Labels: s.offer.labels,
		Sandboxes: []presence.Sandbox{},
	}
	add := func(key string, working bool, since time.Time) {
		run, rollout, _ := strings.Cut(key, "/")
		r.Sandboxes = append(r.Sandboxes, presence.Sandbox{Run: run, Rollout: rollout, Working: working, Since: since})
	}
	s.working.mu.Lock()
	for key, since := range s.working.since {
		add(key, true, since)
	}
	s.working.mu.Unlock()
	r.Working = len(r.Sandboxes)
	s.held.mu.Lock()
	for key, box := range s.held.boxes {
		add(key, false, box.idle.UTC())
	}
	r.Held = len(s.held.boxes)
	s.held.mu.Unlock()
	slices.SortFunc(r.Sandboxes, func(a, b presence.Sandbox) int {
		switch {
		case a.Working != b.Working && a.Working:
			return -1
		case a.Working != b.Working:
			return 1
		}
		return cmp.Or(strings.Compare(a.Run, b.Run), strings.Compare(a.Rollout, b.Rollout))
	})
	r.Sandboxes = r.Sandboxes[:min(len(r.Sandboxes), presence.MaxSandboxes)]
	return presence.Report{Instance: instance, Runner: r}
}
