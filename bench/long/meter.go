package long

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/bench/scripted"
)

// usage is what the process has used of what is counted.
type usage struct {
	time           time.Duration // of processors
	bytes, objects uint64        // allocated
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{figures.ProcessorTime(), m.TotalAlloc, m.Mallocs}
}

// cost is what a turn takes.
type cost struct{ ms, kb, objects float64 }

// since is what was used since then, for each of some turns.
func (u usage) since(then usage, turns int) cost {
	n := float64(turns)
	return cost{milliseconds(u.time-then.time) / n, float64(u.bytes-then.bytes) / 1000 / n,
		float64(u.objects-then.objects) / n}
}

func (c cost) less(d cost) cost { return cost{c.ms - d.ms, c.kb - d.kb, c.objects - d.objects} }

// meter takes what turns use by the tenths of the rollouts. Between two tenths all rollouts wait
// for their server, and the requests of the tenth are sent again: what the machine does besides,
// and what the heap has in it, is the same for both.
type meter struct {
	turns, rollouts int
	// sends those of the turns from one to before another
	requests func(ctx context.Context, from, to int) (cost, error)
	progress func(asked int)

	mu         sync.Mutex
	began      usage       // of the tenth
	asked      int         // turns of all rollouts
	repeating  bool        // requests of before
	all, alone [parts]cost // of a turn with everything, and of its request alone
	err        error
}

// gates are behind each tenth: what the end of one rollout takes is no cost of the others' turns.
// There is none before the first one, as a new server is asked for one turn at first.
func (m *meter) gates() *scripted.Gates {
	g := &scripted.Gates{Rollouts: m.rollouts, Reached: m.take}
	for tenth := range parts {
		g.Turns = append(g.Turns, m.begin(tenth+1))
	}
	return g
}

// begin is the first turn of a tenth. The last tenth ends before the last turn.
func (m *meter) begin(tenth int) int { return min(m.turns-1, tenth*m.turns/parts) }

// take ends a tenth, sends its requests again, and begins the next.
func (m *meter) take(ctx context.Context, tenth int) {
	from, to := m.begin(tenth), m.begin(tenth+1)
	m.mu.Lock()
	m.all[tenth] = used().since(m.began, (to-from)*m.rollouts)
	m.repeating = true
	m.mu.Unlock()
	alone, err := m.requests(ctx, from, to)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alone[tenth], m.err = alone, errors.Join(m.err, err)
	m.repeating, m.began = false, used()
}

// results are what was measured of a turn in each tenth, with everything and of its request alone.
func (m *meter) results() (all, alone [parts]cost, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if want := m.turns * m.rollouts; m.asked != want {
		return all, alone,
			fmt.Errorf("the server was asked for %d turns, not %d: turns that are asked for again spoil the figures",
				m.asked, want)
	}
	if m.err != nil {
		return all, alone, fmt.Errorf("requests alone: %w", m.err)
	}
	return m.all, m.alone, nil
}

// turn counts the turns that are asked for.
func (m *meter) turn(int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.repeating {
		return
	}
	if m.asked++; m.asked == 1 {
		m.began = used()
	}
	m.progress(m.asked)
}
