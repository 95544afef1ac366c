package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/projection"
)

// arrival is an event of the run, or why no more come.
type arrival struct {
	event events.Event
	err   error
}

// readAhead bounds the events that wait to be folded.
const readAhead = 1024

func (l *loop) events(ctx context.Context, in eventlog.Incarnation, from uint64) <-chan arrival {
	arrivals := make(chan arrival, readAhead)
	send := func(a arrival) error {
		select {
		case arrivals <- a:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go func() {
		err := l.env.Log.FollowStream(ctx, l.run, in, from,
			"", func(e events.Event) error { return send(arrival{event: e}) })
		_ = send(arrival{err: err})
	}()
	return arrivals
}

// session is a loop with its projection open.
type session struct {
	*loop
	db      *projection.DB
	lease   *lease
	created time.Time // the incarnation's
	// target is the sequence that must be folded before the next decision: what was there at the
	// start, and what the last decision put on the log or found there.
	target uint64
	closed bool
	wake   time.Time
	// quiet is the sequence at which nothing was left to decide.
	quiet uint64
	// moved is when the run went on for the last time.
	moved time.Time
	rest  rest
	watch watching
	// silent are the times since somebody last decided in which nothing came onto the log, and
	// latest is the time of the latest event.
	silent []silence
	latest time.Time
	// began: this process begins to decide.
	began bool
}

const (
	// restAfter is how long nothing must happen in a closed run before its deciders leave it.
	restAfter = 30 * time.Second
	// decideAgainAfter is the rest after a conflict with something that is folded
	// already: a fault of the decider.
	decideAgainAfter = time.Second
	// shortestRest bounds how often a decider that wakes in the past is asked.
	shortestRest = 5 * time.Millisecond
)

// follow folds and decides until the context ends or a closed run is at rest.
func (s *session) follow(ctx context.Context, arrivals <-chan arrival) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if s.caughtUp() {
			s.lease.stand()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-arrivals:
			if err := s.fold(a, arrivals); err != nil {
				return err
			}
			s.moved = time.Now()
		case <-s.lease.gained:
			if err := s.takeOver(ctx); err != nil {
				return err
			}
		case <-timer.C:
		}
		if err := s.decide(ctx); err != nil {
			return err
		}
		s.watchState(ctx)
		if s.closed && s.wake.IsZero() && time.Since(s.moved) >= restAfter {
			return nil
		}
		timer.Reset(s.pause())
	}
}

// pause is how long to wait for something to happen before looking again.
func (s *session) pause() time.Duration {
	most := time.Hour
	if s.watch.watcher != nil && s.lease.isHeld() {
		most = watchEvery
	}
	switch {
	case s.ready() && !s.wake.IsZero():
		return min(most, max(shortestRest, time.Until(s.wake)))
	case s.closed:
		return min(most, max(shortestRest, restAfter-time.Since(s.moved)))
	}
	return most
}

// ready: this process holds the lease and has folded all that it knows of.
func (s *session) ready() bool { return s.caughtUp() && s.lease.isHeld() }

// caughtUp: this process has folded all that it knows of. Only then does it stand for the lease:
// one that cannot read the log keeps nobody from it.
func (s *session) caughtUp() bool { return s.db.Seq() > 0 && s.db.Seq() >= s.target }

// takeOver sees to it that what another process decided until now is folded
// before this one decides.
func (s *session) takeOver(ctx context.Context) error {
	in, err := s.env.Log.Incarnation(ctx, s.run)
	if err == nil && !in.Created.Equal(s.created) {
		err = fmt.Errorf("take over run %s: %w", s.run, eventlog.ErrReplaced)
	}
	if err != nil {
		return err
	}
	s.began, s.target, s.watch.from = true, max(s.target, in.LastSeq), in.LastSeq
	return nil
}

// batchEvents bounds the events that are folded in one transaction.
const batchEvents = 512

// fold takes an event and those that wait behind it into the projection, in one transaction.
func (s *session) fold(first arrival, more <-chan arrival) error {
	tx := s.db.Begin()
	seq := s.db.Seq()
	var came []events.Event
	for a, n := first, 1; ; n++ {
		err := unreadable(a.err)
		if err == nil {
			err = ofRun(s.apply(tx, seq, a.event))
		}
		if err != nil {
			tx.Discard()
			return err
		}
		seq = a.event.Seq
		s.listen(a.event)
		if s.watch.watcher != nil {
			came = append(came, a.event)
		}
		if n == batchEvents || len(more) == 0 {
			if err := projection.Put(tx, foldedKey, folded{ID: a.event.ID, Time: a.event.Time}); err != nil {
				tx.Discard()
				return err
			}
			err := s.db.Commit(tx, seq)
			for _, e := range came {
				s.watchEvent(e)
			}
			return err
		}
		a = <-more
	}
}

func (s *session) apply(tx *projection.Tx, after uint64, e events.Event) error {
	if after > 0 && e.Seq != after+1 {
		return fmt.Errorf("the run's events %d to %d are missing: it was purged", after+1, e.Seq-1)
	}
	if e.Type == events.RunClosedType {
		s.closed = true
		if err := projection.Put(tx, closedKey, true); err != nil {
			return err
		}
	}
	return applyEvent(tx, s.decider, s.emits, e)
}

// decide lets the decider decide, when this process holds the lease and has folded all
// there is, and publishes.
func (s *session) decide(ctx context.Context) error {
	if !s.ready() || len(s.lease.gained) > 0 {
		return nil
	}
	if s.began {
		excused, err := s.excuse(ctx)
		if err != nil {
			return unappendable(err)
		}
		s.began, s.target = false, max(s.target, excused)
	}
	s.silent = nil // this process decides
	if !s.caughtUp() {
		return nil
	}
	asOf, now := s.db.Seq(), time.Now().Round(0).UTC()
	facts, wake, err := s.rest.decideAt(s.db, s.decider, s.source, asOf, now)
	if err != nil {
		return ofRun(fmt.Errorf("decide as of %d: %w", asOf, err))
	}
	s.wake = wake
	if len(facts) == 0 && wake.IsZero() {
		s.quiet = asOf
	}
	for _, fact := range facts {
		again, err := s.publish(ctx, fact)
		if err != nil {
			return err
		}
		if again {
			break
		}
	}
	if len(facts) > 0 && s.target <= asOf {
		s.env.Logger.Warn("decision conflict", "decider", s.source, "run", s.run, "as_of", asOf, "fact", facts[0].ID)
		s.wake = now.Add(decideAgainAfter)
	}
	s.failures, s.failed = 0, false
	return nil
}

// publish appends one fact. again: the log holds something else than was decided, so
// fold it and decide again.
func (s *session) publish(ctx context.Context, fact events.Event) (again bool, err error) {
	if c, ok := s.decider.(Completer); ok {
		if fact, err = c.Complete(ctx, s.db, fact); err != nil {
			return false, ofRun(fmt.Errorf("complete %s: %w", fact.ID, err))
		}
	}
	s.env.Tracing.StampDecision(ctx, s.env.Log.Reader, &fact)
	stored, adopted, err := s.env.Log.Appender.Append(ctx, fact)
	var conflict *eventlog.Conflict
	if errors.As(err, &conflict) {
		s.target = max(s.target, conflict.Winner.Seq)
		return true, nil
	}
	if err != nil {
		return false, unappendable(err)
	}
	if !adopted {
		s.env.Tracing.Decided(s.service, stored)
	}
	s.target = max(s.target, stored.Seq)
	return adopted && !bytes.Equal(stored.Data, fact.Data), nil
}
