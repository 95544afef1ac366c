package dashboard

import (
	"context"
	"errors"
	"sync"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// Bounds of the books that are kept though nobody holds them, by how much of a run they fold.
const (
	maxBooks    = 32
	maxRollouts = 200_000
	// maxHeld bounds the books that are held at once.
	maxHeld = 64
)

var errBusy = errors.New("too many runs are looked at: close other pages")

// place names a book: a run as it is now, or as it was at a sequence.
type place struct {
	run string
	at  uint64
}

// shelf keeps books of runs.
type shelf struct {
	ctx context.Context // ends all followers
	log *eventlog.Log

	mu    sync.Mutex
	books map[place]*book[runState]
	clock uint64
}

// hold gives a book, as it was left, until release is called. follow lets it go on with the log.
func (s *shelf) hold(run string, at uint64) (b *book[runState], release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := place{run, at}
	b = s.books[p]
	if b == nil {
		if s.held() >= maxHeld {
			return nil, nil, errBusy
		}
		b = newBook(s.log, run, at, func() *runState { return newRunState(run) }, (*runState).apply)
		s.books[p] = b
	}
	b.holders++
	s.clock++
	b.used = s.clock
	return b, sync.OnceFunc(func() { s.release(b) }), nil
}

// follow lets a book that is held follow the log until nobody holds it. A page whose book has all that it shows does without, which saves the server
// a consumer.
func (s *shelf) follow(b *book[runState]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.start(s.ctx)
}

func (s *shelf) release(b *book[runState]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.holders--; b.holders == 0 {
		b.rest()
		s.tidy()
	}
}

func (s *shelf) held() (n int) {
	for _, b := range s.books {
		if b.holders > 0 {
			n++
		}
	}
	return n
}

// tidy puts away the books that were used longest ago until the rest is within the bounds. Those that are held stay.
func (s *shelf) tidy() {
	for {
		var oldest place
		var least *book[runState]
		kept, rollouts := 0, 0
		for p, b := range s.books {
			if b.holders > 0 {
				continue
			}
			kept++
			rollouts += b.size()
			if least == nil || b.used < least.used {
				oldest, least = p, b
			}
		}
		if least == nil || kept <= maxBooks && rollouts <= maxRollouts {
			return
		}
		delete(s.books, oldest)
	}
}

// single is a book that is always there, and follows the log while somebody who asked for that holds it.
type single[S any] struct {
	ctx  context.Context
	mu   sync.Mutex
	book *book[S]
}

func (s *single[S]) hold() (*book[S], func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.holders++
	return s.book, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.book.holders--; s.book.holders == 0 {
			s.book.rest()
		}
	})
}

func (s *single[S]) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.start(s.ctx)
}

// size is how many rollouts and groups a book has of its run.
func (b *book[S]) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, ok := any(b.state).(interface{ size() int }); ok {
		return state.size()
	}
	return 0
}
