package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// SlowAppend is how long an append may take until it counts as slow.
const SlowAppend = time.Second

// Waiting are the appends to a run's stream that get no answer, or are refused because the
// stream is full. An append is repeated until it is answered, so what is wrong with a stream
// shows here and not as an error.
type Waiting struct {
	Run   string
	Since time.Time // when the first of them was sent
	Sent  time.Time // when the last one that was given up was sent
	// the server's reason where it refuses appends, as the stream or its disk is full; ""
	// where it does not answer
	Full  string
	Limit bool // the stream is at its own limit
}

// appends notes which streams answer appends. The common case, an answer while nothing
// is amiss, takes no lock.
type appends struct {
	amiss atomic.Int64 // streams in waiting
	slow  atomic.Int64

	mu      sync.Mutex
	waiting map[string]Waiting
}

// answered notes how an append that was sent at a moment came out.
func (a *appends) answered(run string, sent time.Time, err error) {
	if time.Since(sent) > SlowAppend {
		a.slow.Add(1)
	}
	// a caller may be in more of a hurry
	unanswered := err != nil && unknownOutcome(err) && time.Since(sent) >= SlowAppend
	full := err != nil && streamFull(err)
	if !unanswered && !full && a.amiss.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w, known := a.waiting[run]
	switch {
	case unanswered || full:
		if !known {
			w = Waiting{Run: run, Since: sent}
		}
		w.Sent, w.Full, w.Limit = sent, "", full && apiCode(err) == codeStoreFailed
		if full {
			w.Full = err.Error()
		}
		if a.waiting == nil {
			a.waiting = map[string]Waiting{}
		}
		a.waiting[run] = w
	case err == nil && known && sent.After(w.Since):
		// Only a write shows that writes work: a stream that refuses them still tells a
		// writer that it is too late.
		delete(a.waiting, run)
	}
	a.amiss.Store(int64(len(a.waiting)))
}

// abandoned is after what time an append that nobody repeats says nothing about its stream any
// more. A waiting append is repeated after some five seconds.
const abandoned = time.Minute

// Unanswered lists the streams whose last appends got no answer.
func (l Streams) Unanswered() []Waiting {
	a := &l.appends
	if a.amiss.Load() == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Waiting
	for run, w := range a.waiting {
		if !w.Limit && time.Since(w.Sent) > abandoned {
			delete(a.waiting, run)
			continue
		}
		list = append(list, w)
	}
	a.amiss.Store(int64(len(a.waiting)))
	return list
}

// Forget takes back what is known of a run's appends: its stream is gone, or has room
// again although nobody writes.
func (l Streams) Forget(run string) {
	a := &l.appends
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, run)
	a.amiss.Store(int64(len(a.waiting)))
}

// HasRoom reports whether a run's stream is gone, or has room for an append again.
func (l Streams) HasRoom(ctx context.Context, run string) (bool, error) {
	s, err := l.js.Stream(ctx, events.RunStream(run))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	info := s.CachedInfo()
	most := info.Config.MaxBytes
	return most <= 0 || int64(info.State.Bytes) < most-min(events.MaxPayload, most/50), nil
}

// SlowAppends counts appends that took longer than SlowAppend.
func (l Streams) SlowAppends() int64 { return l.appends.slow.Load() }

// Ask asks the server about the stream of the catalogue: an error says that the log cannot be used
// now. It waits no longer than the context.
func (l Streams) Ask(ctx context.Context) (Replication, error) {
	if !l.nc.IsConnected() {
		return Replication{}, errors.New("the connection to the NATS server is lost")
	}
	s, err := l.js.Stream(ctx, events.RunStream(events.Catalogue))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return Replication{}, nil // no plane has used the server yet
	case err != nil:
		return Replication{}, l.leaderless(fmt.Errorf("ask the NATS server: %w", err))
	}
	r := replication(s.CachedInfo())
	if r.Leaderless() { // a server without one still tells of the stream
		return r, fmt.Errorf("%w: stream %s: %s", errNoLeader, r.Stream, r.Degraded())
	}
	return r, nil
}
