package scripted

import (
	"context"
	"sync"
)

// Gates are turns that no rollout begins before all have come to them, so that what is between two
// gates is the same for all. They are passed in their order.
type Gates struct {
	// Turns are those of the gates, in ascending order, and Rollouts how many wait for each other.
	Turns    []int
	Rollouts int
	// Reached is called when all wait at a gate, and opens it when it returns. Meanwhile the server
	// answers requests of earlier turns.
	Reached func(ctx context.Context, gate int)

	mu      sync.Mutex
	next    int
	waiting int
	opened  chan struct{} // of the next gate; nil while nobody waits
}

// pass waits at a turn's gate; it is false where the caller has gone.
func (g *Gates) pass(ctx context.Context, turn int) bool {
	gate, opened, all := g.come(turn)
	switch {
	case opened == nil:
		return true
	case all:
		g.Reached(ctx, gate)
		g.open()
		return true
	}
	select {
	case <-opened:
		return true
	case <-ctx.Done():
		g.leave(opened)
		return false
	}
}

// come waits at the next gate if it is that of the turn; opened is nil otherwise, and all is true
// for the last one who comes.
func (g *Gates) come(turn int) (gate int, opened chan struct{}, all bool) {
	if g == nil {
		return 0, nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == len(g.Turns) || turn != g.Turns[g.next] {
		return 0, nil, false
	}
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	g.waiting++
	return g.next, g.opened, g.waiting == g.Rollouts
}

func (g *Gates) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
	g.next, g.waiting, g.opened = g.next+1, 0, nil
}

// leave takes back that one waits at a gate: it will come again.
func (g *Gates) leave(opened chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == opened {
		g.waiting--
	}
}
