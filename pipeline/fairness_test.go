package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// floor is a handler whose work ends when the test says so.
type floor struct {
	mu      sync.Mutex
	working map[string][]chan struct{} // by run
	started chan string                // run of each input, in the order in which they are taken up
	over    chan struct{}              // closed when work takes no time any more
}

func newFloor() *floor {
	return &floor{working: map[string][]chan struct{}{}, started: make(chan string, 10000), over: make(chan struct{})}
}

func (f *floor) handle(_ context.Context, m pipeline.Message) ([]events.Event, error) {
	done := make(chan struct{})
	f.mu.Lock()
	f.working[m.Event.Run] = append(f.working[m.Event.Run], done)
	f.mu.Unlock()
	f.started <- m.Event.Run
	select {
	case <-done:
		return nil, nil
	case <-f.over:
		return nil, nil
	}
}

// end lets the oldest work of a run end.
func (f *floor) end(run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.working[run][0])
	f.working[run] = f.working[run][1:]
}

func (f *floor) inWork(run string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.working[run])
}

// next waits for an input to be taken up.
func (f *floor) next(t *testing.T) string {
	t.Helper()
	select {
	case run := <-f.started:
		return run
	case <-time.After(time.Minute):
		t.Fatal("nothing is taken up")
		return ""
	}
}

// served waits until a run's inputs wait at its consumer.
func (p *plane) served(t *testing.T, run string, n uint64) {
	t.Helper()
	natstest.Eventually(t, "the consumer of run "+run+" is made", func() bool {
		c, err := p.log.JetStream().Consumer(t.Context(), events.RunStream(run),
			topology.ConsumersOf(topology.Scorer)[0].Name)
		return err == nil && c.CachedInfo().NumPending+uint64(c.CachedInfo().NumAckPending) >= n
	})
}

// TestRunsShareTheSlots: a run with 500 inputs that hold all slots, and one
// that comes later with 40.
func TestRunsShareTheSlots(t *testing.T) {
	p := newPlane(t)
	const slots, large, small = 8, 500, 40
	p.open(t, "large")
	p.finish(t, "large", 0, large)
	f := newFloor()
	effect(t, p.env(t, "1"), slots, f.handle)
	defer close(f.over)
	for range slots {
		if run := f.next(t); run != "large" {
			t.Fatalf("run %s is worked on", run)
		}
	}
	p.open(t, "small")
	p.finish(t, "small", 0, small)

	p.served(t, "small", small)

	// All work takes equally long: the oldest always ends first.
	var order []string
	for range slots {
		order = append(order, "large")
	}
	step := func() string {
		f.end(order[0])
		run := f.next(t)
		order = append(order[1:], run)
		return run
	}
	for step() != "small" { // it has to see first that there are inputs
	}
	taken, reached := map[string]int{"small": 1}, 0
	for total := 1; taken["small"] < small; total++ {
		taken[step()]++
		if reached == 0 && f.inWork("small") >= slots/2 {
			reached = total
		}
	}
	if taken["large"] > small+slots {
		t.Errorf("while the small run's %d inputs were taken up, the large one's %d were", small, taken["large"])
	}
	if reached == 0 || reached > 3*slots {
		t.Errorf("the small run had its share of the slots after %d inputs", reached)
	}
	for f.inWork("small") > 0 {
		f.end("small")
		if run := f.next(t); run != "large" {
			t.Fatalf("run %s is worked on", run)
		}
	}
	natstest.Eventually(t, "alone again, the large run has all slots",
		func() bool { return f.inWork("large") == slots })
}

// TestShortWorkIsNotHeldUpByLongWork: a run whose work is short keeps the slots that it gets
// from one whose work is long.
func TestShortWorkIsNotHeldUpByLongWork(t *testing.T) {
	p := newPlane(t)
	const slots, short = 4, 60
	p.open(t, "long")
	p.finish(t, "long", 0, 200)
	f := newFloor()
	effect(t, p.env(t, "1"), slots, f.handle)
	defer close(f.over)
	for range slots {
		f.next(t)
	}
	p.open(t, "short")
	p.finish(t, "short", 0, short)
	p.served(t, "short", short)
	taken := map[string]int{}
	for f.end("long"); f.next(t) != "short"; f.end("long") {
	}
	for taken["short"] < short-1 {
		if f.inWork("short") > 0 {
			f.end("short")
		} else {
			f.end("long")
		}
		taken[f.next(t)]++
	}
	if taken["long"] > short/3 {
		t.Errorf("while %d short inputs were taken up, %d long ones were", short, taken["long"])
	}
}

// TestHangingRunLeavesSlots: the first run has inputs without end, and each of them hangs until it
// fails. A second run waits for the first failure, and finds a free slot at once from then on.
func TestHangingRunLeavesSlots(t *testing.T) {
	p := newPlane(t)
	const slots, healthy = 8, 100
	p.open(t, "poison")
	p.open(t, "healthy")
	f := newFloor()
	defer close(f.over)
	var done atomic.Int64
	effect(t, p.env(t, "1"), slots, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		if m.Event.Run == "healthy" {
			done.Add(1)
			return nil, nil
		}
		_, err := f.handle(ctx, m)
		return nil, errors.Join(err, errors.New("the server did not answer"))
	})
	p.finish(t, "poison", 0, 200)
	natstest.Eventually(t, "the run that is alone has all slots", func() bool { return f.inWork("poison") == slots })
	p.finish(t, "healthy", 0, healthy)
	p.served(t, "healthy", healthy)
	f.end("poison")
	natstest.Eventually(t, "the healthy run's work is done", func() bool { return done.Load() >= healthy })
	for range 3 {
		f.end("poison")
	}
	natstest.Eventually(t, "the run that hangs has all slots but one",
		func() bool { return f.inWork("poison") == slots-1 })
	p.finish(t, "healthy", healthy, healthy)
	natstest.Eventually(t, "the healthy run's later work is done", func() bool { return done.Load() >= 2*healthy })
	if n := f.inWork("poison"); n != slots-1 {
		t.Errorf("the run that hangs holds %d of %d slots", n, slots)
	}
}

// TestIdleRunsTakeNoSlots: beside 50 open runs without work, some of which had some, an active one
// has each slot that it has alone, and has it again whenever work ends.
func TestIdleRunsTakeNoSlots(t *testing.T) {
	p := newPlane(t)
	const slots, idle, rounds = 8, 50, 60
	f := newFloor()
	defer close(f.over)
	for i := range idle {
		p.open(t, idleRun(i))
		if i%2 == 0 {
			p.finish(t, idleRun(i), 0, 1)
		}
	}
	effect(t, p.env(t, "1"), slots, f.handle)
	for range idle / 2 {
		f.end(f.next(t))
	}
	for i := range idle {
		natstest.Eventually(t, "an idle run is served", func() bool {
			c, err := p.log.JetStream().Consumer(t.Context(), events.RunStream(idleRun(i)),
				topology.ConsumersOf(topology.Scorer)[0].Name)
			return err == nil && c.CachedInfo().NumAckPending == 0 && c.CachedInfo().NumPending == 0
		})
	}
	p.open(t, "active")
	p.finish(t, "active", 0, rounds+slots)
	full := func() bool { return f.inWork("active") == slots }
	natstest.Eventually(t, "the active run has all slots", full)
	for range rounds {
		f.end("active")
		natstest.Eventually(t, "the active run has all slots again", full)
	}
	p.finish(t, idleRun(1), 0, 1)
	p.served(t, idleRun(1), 1)
	for f.inWork(idleRun(1)) == 0 { // it gets the next slot, or the one after it
		if f.inWork("active") == 0 {
			t.Fatal("a run that was idle gets no slot before the active one is done")
		}
		f.end("active")
		for range 200 {
			if f.inWork(idleRun(1))+f.inWork("active") == slots {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func idleRun(i int) string { return fmt.Sprint("idle", i) }

// TestEqualRunsHaveEqualParts: of eight runs that always have work each has its eighth of
// the slots, within a tenth.
func TestEqualRunsHaveEqualParts(t *testing.T) {
	p := newPlane(t)
	const slots, runs, warm, steps = 64, 8, 192, 384
	f := newFloor()
	defer close(f.over)
	for i := range runs {
		p.open(t, idleRun(i))
		p.finish(t, idleRun(i), 0, slots+(warm+steps)*3/2/runs)
	}
	effect(t, p.env(t, "1"), slots, f.handle)
	for i := range runs {
		p.served(t, idleRun(i), 1)
	}
	var order []string
	for range slots {
		order = append(order, f.next(t))
	}
	held := map[string]int{}
	for n := range warm + steps { // all work takes equally long: the oldest always ends first
		f.end(order[0])
		order = append(order[1:], f.next(t))
		for _, run := range order {
			if n >= warm {
				held[run]++
			}
		}
	}
	for i := range runs {
		if part := float64(held[idleRun(i)]) / steps / slots * runs; part < 0.9 || part > 1.1 {
			t.Errorf("run %d has %.2f of its eighth of the slots", i, part)
		}
	}
}
