package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

// book is what is folded of one stream. All open pages share it, and it follows the log
// only while somebody holds it and is told what comes: it goes on from where it stopped
// when the next one comes.
type book[S any] struct {
	log   eventlog.Reader
	run   string
	until uint64 // the last sequence that is folded; 0: all that come
	fresh func() *S
	apply func(*S, events.Event) error

	mu      sync.Mutex
	state   *S
	created time.Time // of the stream that was folded
	last    uint64    // sequence
	at      time.Time // of the last event
	ended   bool      // nothing can come any more
	wrong   error     // why the log cannot be read now
	waiting []chan struct{}

	// Of the shelf.
	holders int
	used    uint64
	stop    context.CancelFunc // nil while nothing follows
	done    chan struct{}      // closed when nothing follows
}

// errReached ends the reading of a book that shows the past.
var errReached = errors.New("reached")

func newBook[S any](log eventlog.Reader, run string, until uint64, fresh func() *S,
	apply func(*S, events.Event) error) *book[S] {
	done := make(chan struct{})
	close(done)
	return &book[S]{log: log, run: run, until: until, fresh: fresh, apply: apply, state: fresh(), done: done}
}

// start lets the book follow the log, behind who followed it before.
func (b *book[S]) start(ctx context.Context) {
	if b.stop != nil {
		return
	}
	ctx, b.stop = context.WithCancel(ctx)
	before, done := b.done, make(chan struct{})
	b.done = done
	go func() {
		defer close(done)
		<-before
		b.follow(ctx)
	}()
}

// rest ends what start began.
func (b *book[S]) rest() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}

// has reports whether a stream is folded up to a sequence, or the archive of one
// that is gone to its end.
func (b *book[S]) has(in eventlog.Incarnation, seq uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in.Created.IsZero() {
		return b.ended
	}
	return b.created.Equal(in.Created) && b.last >= seq && b.wrong == nil
}

// follow folds the log until the context ends, or until there is nothing more to fold.
func (b *book[S]) follow(ctx context.Context) {
	b.note(false, nil)
	for ctx.Err() == nil {
		err := b.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || errors.Is(err, errReached) {
			b.note(true, nil)
			return
		}
		if errors.Is(err, eventlog.ErrReplaced) {
			continue // read begins anew
		}
		b.note(false, err)
		retry.Sleep(ctx, time.Second)
	}
}

// read follows one incarnation of the stream, or reads the archive of one that is gone.
func (b *book[S]) read(ctx context.Context) error {
	in, err := b.log.Incarnation(ctx, b.run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return b.archived(ctx)
	}
	if err != nil {
		return err
	}
	b.begin(in.Created)
	if b.until > 0 && b.position() >= min(b.until, in.LastSeq) {
		return errReached
	}
	until := b.until
	if until > 0 {
		until = min(until, in.LastSeq)
	}
	return b.log.FollowStream(ctx, b.run, in, b.position()+1,
		"", func(e events.Event) error { return b.take(e, until) })
}

func (b *book[S]) archived(ctx context.Context) error {
	b.begin(time.Time{})
	for e, err := range b.log.All(ctx, b.run, b.position()+1) {
		if err != nil {
			return err
		}
		if err := b.take(e, b.until); err != nil {
			return err
		}
	}
	return nil
}

// begin starts anew where the stream is another one than was folded. The archive of
// a stream is that stream.
func (b *book[S]) begin(created time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.created.IsZero() && !created.IsZero() && !b.created.Equal(created) {
		b.state, b.last, b.at = b.fresh(), 0, time.Time{}
	}
	if !created.IsZero() {
		b.created = created
	}
}

func (b *book[S]) take(e events.Event, until uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until > 0 && e.Seq > until {
		return errReached
	}
	if err := b.apply(b.state, e); err != nil {
		return err
	}
	b.last, b.at, b.wrong = e.Seq, e.Time, nil
	b.tell()
	if until > 0 && e.Seq == until {
		return errReached
	}
	return nil
}

func (b *book[S]) note(ended bool, wrong error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended, b.wrong = ended, wrong
	b.tell()
}

// tell wakes those who wait for a change.
func (b *book[S]) tell() {
	for _, ch := range b.waiting {
		close(ch)
	}
	b.waiting = nil
}

func (b *book[S]) position() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// await waits until the book has come to a sequence, cannot come there, or the context ends.
func (b *book[S]) await(ctx context.Context, seq uint64) {
	for {
		b.mu.Lock()
		if b.last >= seq || b.ended || b.wrong != nil {
			b.mu.Unlock()
			return
		}
		next := make(chan struct{})
		b.waiting = append(b.waiting, next)
		b.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			b.leave(next)
			return
		}
	}
}

// next is closed when the book is beyond a sequence, or cannot be read. leave
// is for who waits no more.
func (b *book[S]) next(seq uint64) (next chan struct{}, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = make(chan struct{})
	if b.last > seq {
		close(next)
		return next, func() {}
	}
	b.waiting = append(b.waiting, next)
	return next, func() { b.leave(next) }
}

// leave takes away somebody who waits no more.
func (b *book[S]) leave(ch chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == ch {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return
		}
	}
}
