package gateway

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// gate lets a bounded number of calls through at once. Those who wait come in by priority, then in
// their order; where too many wait, the one that would come in last is sent away.
type gate struct {
	mu      sync.Mutex
	free    int
	most    int // that may wait
	next    uint64
	waiting queue
	metrics *metrics
}

// waiter is one who waits; came is closed when it is its turn, or when it is sent away.
type waiter struct {
	priority int
	order    uint64
	index    int // in the queue, -1 when out of it
	shed     bool
	came     chan struct{}
}

func newGate(slots, waiting int, m *metrics) *gate {
	return &gate{free: slots, most: waiting, metrics: m}
}

// enter waits for a slot, which leave gives back.
func (g *gate) enter(ctx context.Context, priority int) error {
	g.mu.Lock()
	if g.free > 0 { // then nobody waits
		g.free--
		g.metrics.running.Inc()
		g.mu.Unlock()
		return nil
	}
	if len(g.waiting) >= g.most && !g.shedBelow(priority) {
		g.mu.Unlock()
		return g.overloaded()
	}
	w := &waiter{priority: priority, order: g.next, came: make(chan struct{})}
	g.next++
	heap.Push(&g.waiting, w)
	g.metrics.waiting.Inc()
	g.mu.Unlock()
	select {
	case <-w.came:
		if w.shed {
			return g.overloaded()
		}
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.shed {
		return ctx.Err()
	}
	if w.index < 0 { // its turn came at the same moment
		g.give()
		return ctx.Err()
	}
	heap.Remove(&g.waiting, w.index)
	g.metrics.waiting.Dec()
	return ctx.Err()
}

// shedBelow sends the last of the waiting away, when it has a lower priority.
func (g *gate) shedBelow(priority int) bool {
	if len(g.waiting) == 0 {
		return false
	}
	last := slices.MaxFunc(g.waiting, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.order, b.order))
	})
	if last.priority >= priority {
		return false
	}
	heap.Remove(&g.waiting, last.index)
	g.metrics.waiting.Dec()
	last.shed = true
	close(last.came)
	return true
}

func (g *gate) overloaded() error {
	return later(time.Second, "overloaded",
		"%d calls wait for the inference servers, of this one's priority or a higher one: try again", g.most)
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.give()
}

// give hands a slot to the first who waits.
func (g *gate) give() {
	if len(g.waiting) == 0 {
		g.free++
		g.metrics.running.Dec()
		return
	}
	close(heap.Pop(&g.waiting).(*waiter).came)
	g.metrics.waiting.Dec()
}

// queue implements heap.Interface.
type queue []*waiter

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].priority != q[j].priority {
		return q[i].priority > q[j].priority
	}
	return q[i].order < q[j].order
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *queue) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last], w.index = nil, -1
	*q = (*q)[:last]
	return w
}

// locks lets the calls of one rollout state their turns one after the other,
// and so many count at once.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{} // of as many places as the lock has: who fills one has it
	users int
}

// take locks a name until the function that it returns is called.
func (l *locks) take(name string) (release func()) {
	release, _ = l.wait(context.Background(), name, 1)
	return release
}

// wait is take for somebody who may leave before his turn comes, of a lock that
// so many may have at once.
func (l *locks) wait(ctx context.Context, name string, places int) (release func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[name]
	if k == nil {
		k = &lock{turn: make(chan struct{}, places)}
		l.held[name] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, name)
		}
	}
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	return func() {
		<-k.turn
		leave()
	}, nil
}
