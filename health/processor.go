package health

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// How it is told that a process gets no processor. A process that works beside ten others on one
// processor is slow, and well; one beside fifty is not.
const (
	// wakeEvery is how often a process looks whether it gets a processor, and lately
	// is how long that counts.
	wakeEvery = time.Second
	lately    = 10 * time.Second
	// A process is starved whose timers were veryLate at least lateTimes lately. Once is a process,
	// or a machine, that was stopped and goes on.
	veryLate  = time.Second
	lateTimes = 2
	// It is starved, too, whose threads waited for a processor longer than slowdown times what they
	// ran, and at least leastWait.
	slowdown  = 20
	leastWait = lately / 2
)

// Processor tells whether this process gets a processor when it wants one.
type Processor struct {
	mu    sync.Mutex
	wakes []wake // lately, the oldest first
	due   time.Time
	read  func() map[string]usage // of the threads
	known map[string]usage
}

// wake is one look.
type wake struct {
	at               time.Time
	late, ran, waits time.Duration
}

// usage is how long a thread has run, and how long it has waited for a processor.
type usage struct{ ran, waits time.Duration }

// NewProcessor makes one; Watch makes it work.
func NewProcessor() *Processor { return &Processor{read: threads} }

// Watch looks until the context ends.
func (p *Processor) Watch(ctx context.Context) {
	p.begin(time.Now())
	timer := time.NewTimer(wakeEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			p.woke(time.Now())
			timer.Reset(wakeEvery)
		}
	}
}

func (p *Processor) begin(now time.Time) {
	known := p.read()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.due = known, now.Add(wakeEvery)
}

// woke notes a look, which was due earlier.
func (p *Processor) woke(now time.Time) {
	found := p.read()
	p.mu.Lock()
	defer p.mu.Unlock()
	w := wake{at: now, late: now.Sub(p.due)}
	for thread, u := range found {
		w.ran += u.ran - p.known[thread].ran
		w.waits += u.waits - p.known[thread].waits
	}
	p.known, p.due = found, now.Add(wakeEvery)
	for len(p.wakes) > 0 && now.Sub(p.wakes[0].at) > lately {
		p.wakes = p.wakes[1:]
	}
	p.wakes = append(p.wakes, w)
}

// Starved says how this process gets no processor, "" where it does.
func (p *Processor) Starved() string {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var latest, ran, waits time.Duration
	times := 0
	for _, w := range append(p.wakes[:len(p.wakes):len(p.wakes)], wake{at: now, late: p.overdue(now)}) {
		if now.Sub(w.at) > lately {
			continue
		}
		if w.late >= veryLate {
			times++
		}
		latest, ran, waits = max(latest, w.late), ran+w.ran, waits+w.waits
	}
	switch {
	case times >= lateTimes:
		return fmt.Sprintf("%d timers of this process fired late within %s, by up to %s%s", times, lately,
			latest.Round(100*time.Millisecond), load())
	case waits >= leastWait && waits > slowdown*ran:
		return fmt.Sprintf("within %s this process waited for a processor for %s and had one for %s%s",
			lately, waits.Round(time.Second/10), ran.Round(time.Millisecond), load())
	}
	return ""
}

// lostTime reports whether the process got no processor since a moment, for so long that what was
// slow or silent meanwhile may be well.
func (p *Processor) lostTime(since time.Time) bool {
	if p.Starved() != "" {
		return true
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.wakes {
		if w.late >= veryLate && w.at.After(since) {
			return true
		}
	}
	return p.overdue(now) >= veryLate
}

// overdue is how late the next look is by now.
func (p *Processor) overdue(now time.Time) time.Duration {
	if p.due.IsZero() {
		return 0
	}
	return max(0, now.Sub(p.due))
}

// load is the machine's, as far as it says it.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	average, _, found := strings.Cut(string(text), " ")
	if err != nil || !found {
		return ""
	}
	return fmt.Sprintf("; the machine's load is %s on %d processors", average, runtime.NumCPU())
}

// threads are those of this process. Kernels that keep no such statistics give none.
func threads() map[string]usage {
	const folder = "/proc/self/task"
	found := map[string]usage{}
	list, err := os.ReadDir(folder)
	if err != nil {
		return found
	}
	for _, thread := range list {
		text, err := os.ReadFile(folder + "/" + thread.Name() + "/schedstat")
		if err != nil {
			continue // it has ended
		}
		var u usage
		if _, err := fmt.Sscan(string(text), &u.ran, &u.waits); err == nil {
			found[thread.Name()] = u
		}
	}
	return found
}
