package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Bounds of the books that are kept though nobody holds them, by how much of a run they fold.
const (
	maxBooks    = 32
	maxRollouts = 200_000
	// maxHeld bounds the books that are held at once.
	maxHeld = 64
	// maxLong bounds the runs that are noted as too long for a book that is kept.
	maxLong = 1024
)

var errBusy = errors.New("too many runs are looked at: close other pages")

// place names a book: a run as it is now, or as it was at a sequence.
type place struct {
	run string
	at  uint64
}

// shelf keeps books: of runs, or of the catalogue.
type shelf[S any] struct {
	ctx   context.Context // ends all followers
	log   eventlog.Reader
	fresh func(run string) *S
	apply func(*S, events.Event) error
	most  int // rollouts and groups in the books that are kept

	mu    sync.Mutex
	books map[place]*book[S]
	clock uint64
	long  *lru.Cache[string, time.Time] // when the streams were created of which a book alone is above the bound
}

func newShelf[S any](ctx context.Context, log eventlog.Reader, fresh func(run string) *S,
	apply func(*S, events.Event) error) *shelf[S] {
	long, _ := lru.New[string, time.Time](maxLong) // an error is one of a size below 1
	return &shelf[S]{ctx: ctx, log: log, fresh: fresh, apply: apply, most: maxRollouts,
		books: map[place]*book[S]{}, long: long}
}

// hold gives a book, as it was left, until release is called. follow lets it go on with the log.
func (s *shelf[S]) hold(run string, at uint64) (b *book[S], release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := place{run, at}
	b = s.books[p]
	if b == nil {
		if s.size() >= maxHeld {
			return nil, nil, errBusy
		}
		b = newBook(s.log, run, at, func() *S { return s.fresh(run) }, s.apply)
		s.books[p] = b
	}
	b.holders++
	s.clock++
	b.used = s.clock
	return b, sync.OnceFunc(func() { s.release(b) }), nil
}

// follow lets a book that is held follow the log until nobody holds it. A page whose book has all
// that it shows does without, which saves the server a consumer.
func (s *shelf[S]) follow(b *book[S]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.start(s.ctx)
}

func (s *shelf[S]) release(b *book[S]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.holders--; b.holders == 0 {
		b.rest()
		if b.size() > s.most { // it would have all others put away, and then itself
			s.long.Add(b.run, b.stream())
			delete(s.books, place{b.run, b.until})
		}
		s.tidy()
	}
}

// tooLong reports whether a stream's book was above the bound when it was
// released, so that it is not kept.
func (s *shelf[S]) tooLong(run string, in eventlog.Incarnation) bool {
	created, ok := s.long.Get(run)
	return ok && created.Equal(in.Created)
}

func (s *shelf[S]) size() (n int) {
	for _, b := range s.books {
		if b.holders > 0 {
			n++
		}
	}
	return n
}

// tidy puts away the books that were used longest ago until the rest is within the bounds.
// Those that are held stay.
func (s *shelf[S]) tidy() {
	for {
		var oldest place
		var least *book[S]
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
		if least == nil || kept <= maxBooks && rollouts <= s.most {
			return
		}
		delete(s.books, oldest)
	}
}

// size is how many rollouts and groups a book has of its run.
func (b *book[S]) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, ok := any(b.state).(interface{ Size() int }); ok {
		return state.Size()
	}
	return 0
}

// stream is when the stream was created that is folded.
func (b *book[S]) stream() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.created
}
