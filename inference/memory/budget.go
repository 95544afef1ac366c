// Package memory bounds the memory that a process spends on requests and answers, whose
// size somebody else decides.
package memory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrTooLarge says that one share needs more than a share may have, so that waiting is of no use.
var ErrTooLarge = errors.New("too large")

// ErrSpent says that the budget was spent for as long as a share waits.
var ErrSpent = errors.New("the memory is spent")

// Budget is a number of bytes that shares are taken of. Shares grow while they are read, so each
// holds something while it waits for more, and all together could wait for ever. A part of the
// budget is therefore kept for one share at a time: the share that has it can grow as far as any
// may, ends, and leaves that part to the next one.
type Budget struct {
	// Wait is how long a share waits for more; 0: as long as its context lets it.
	Wait time.Duration

	most      int64 // of one share, and the part that is kept for one
	rest      int64 // for all the others
	perTenant int64 // of rest

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
	kept    *Share // has the part that is kept
	waiting []*waiter
}

// New makes a budget of total bytes, of which one share may have most. most
// must be smaller than total.
func New(total, most int64) *Budget {
	rest := total - most
	return &Budget{most: most, rest: rest, perTenant: rest / 2, tenants: map[string]int64{}}
}

// Share is what one request or answer takes of the budget. It is used by one goroutine at a time. A
// nil Share takes nothing.
type Share struct {
	budget *Budget
	tenant string
	size   int64
	waited time.Duration
}

type waiter struct {
	share *Share
	n     int64
	came  chan struct{}
}

// Share begins an empty share. Shares of one tenant have at most half of what is not kept for one.
func (b *Budget) Share(tenant string) *Share { return &Share{budget: b, tenant: tenant} }

// Waited is how long the share has waited to grow.
func (s *Share) Waited() time.Duration {
	if s == nil {
		return 0
	}
	return s.waited
}

// Grow takes n bytes more, and waits until there are as many. Its error is ErrTooLarge,
// ErrSpent or the context's.
func (s *Share) Grow(ctx context.Context, n int64) error {
	if s == nil {
		return nil
	}
	b := s.budget
	b.mu.Lock()
	if s.size+n > b.most {
		b.mu.Unlock()
		return ErrTooLarge
	}
	if b.give(s, n) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{s, n, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	defer func(began time.Time) { s.waited += time.Since(began) }(time.Now())
	if b.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Wait, ErrSpent)
		defer cancel()
	}
	select {
	case <-w.came:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return context.Cause(ctx)
	}
	return nil // it came at the same moment
}

// give takes n bytes for the share, if there are as many. The caller holds mu.
func (b *Budget) give(s *Share, n int64) bool {
	switch {
	case b.kept == s:
	case b.used+n <= b.rest && b.tenants[s.tenant]+n <= b.perTenant:
		b.count(s, n)
	case b.kept == nil:
		b.count(s, -s.size) // from now on it is in the part that is kept for one
		b.kept = s
	default:
		return false
	}
	s.size += n
	return true
}

func (b *Budget) count(s *Share, n int64) {
	b.used += n
	if b.tenants[s.tenant] += n; b.tenants[s.tenant] == 0 {
		delete(b.tenants, s.tenant)
	}
}

// Shrink gives n bytes back.
func (s *Share) Shrink(n int64) {
	if s == nil || n == 0 {
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	s.size -= n
	switch {
	case b.kept != s:
		b.count(s, -n)
	case s.size == 0:
		b.kept = nil
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		if !b.give(w.share, w.n) {
			return false
		}
		close(w.came)
		return true
	})
}

// End gives everything back.
func (s *Share) End() {
	if s != nil {
		s.Shrink(s.size)
	}
}
