package runtime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Decider folds a run and decides from what it has folded. Both functions are pure: what they read is the
// state, the event, the sequence and the clock that they are given.
type Decider interface {
	// Apply folds one event. Types that it does not know are skipped.
	Apply(tx *projection.Tx, e events.Event) error
	// Decide says which facts follow from the state. A decision that is not on the log yet is made again by the
	// next call. wake asks for another call at that time, zero only when something happens.
	Decide(v projection.View, asOf uint64, now time.Time) (facts []events.Event, wake time.Time, err error)
}

// Completer is a Decider whose facts name files. Complete does the deterministic part that needs the store: the
// same state and fact give the same bytes.
type Completer interface {
	Complete(ctx context.Context, v projection.View, fact events.Event) (events.Event, error)
}

// Deciding is a deciding service: for every run, its deciders by instance name ("" for the only one).
type Deciding struct {
	Name string
	New  func(run string, cfg events.RunConfig) (map[string]Decider, error)
}

// RunDeciding runs a deciding service over all runs until the context ends.
func RunDeciding(ctx context.Context, env Env, d Deciding) error {
	leases, err := newLeases(ctx, env)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	known := map[string]bool{}
	return watchRuns(ctx, env, func(r run) {
		if r.closed || known[r.name] {
			return
		}
		known[r.name] = true
		deciders, err := d.New(r.name, r.cfg)
		if err != nil {
			env.Logger.Error("a run cannot be decided on", "service", d.Name, "run", r.name, "error", err)
			return
		}
		for instance, decider := range deciders {
			l := newLoop(env, d.Name, r.name, instance, decider, leases)
			wg.Go(func() { l.keep(ctx) })
		}
	})
}

// source is the ce-source of what a decider states.
func source(service, instance string) string {
	if instance == "" {
		return service
	}
	return service + "/" + instance
}

// loop is one decider at work on one run.
type loop struct {
	env     Env
	run     string
	source  string
	decider Decider
	emits   map[string]bool
	leases  *leases
	dir     string
}

func newLoop(env Env, service, runName, instance string, d Decider, l *leases) *loop {
	return &loop{
		env: env, run: runName, source: source(service, instance), decider: d, emits: emittedKinds(service), leases: l,
		dir: filepath.Join(env.Dir, "projections", runName, service+"-"+instance),
	}
}

// keep runs the loop until the context ends or the closed run is at rest, and begins it again after faults.
func (l *loop) keep(ctx context.Context) {
	for {
		err := l.work(ctx)
		if ctx.Err() != nil || err == nil {
			return
		}
		l.env.Logger.Warn("a decider stopped, beginning again", "decider", l.source, "run", l.run, "error", err)
		if !sleep(ctx, time.Second) {
			return
		}
	}
}

// restAfter is how long nothing must happen in a closed run before its deciders leave it.
const restAfter = 30 * time.Second

// work folds and decides.
func (l *loop) work(ctx context.Context) (err error) {
	defer guard(l.source, &err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := l.env.Log.Incarnation(ctx, l.run)
	if err != nil {
		return err
	}
	db, err := projection.Open(l.dir, projection.Identity{
		Stream: events.RunStream(l.run), Created: in.Created, FirstSeq: in.FirstSeq, Fold: fmt.Sprintf("%s v%d", l.source, foldVersion),
	})
	if err != nil {
		return err
	}
	defer db.Close()
	lease := l.leases.hold(ctx, l.run+"."+l.source)
	s := &session{loop: l, db: db, lease: lease, target: in.LastSeq}
	return s.follow(ctx, l.events(ctx, db.Seq()+1))
}

// foldVersion changes when any decider folds differently than before: projections of older versions begin again.
const foldVersion = 1

// arrival is an event of the run, or why no more come.
type arrival struct {
	event events.Event
	err   error
}

// readAhead bounds the events that wait to be folded.
const readAhead = 1024

func (l *loop) events(ctx context.Context, from uint64) <-chan arrival {
	arrivals := make(chan arrival, readAhead)
	go func() {
		err := l.env.Log.Follow(ctx, l.run, from, "", func(e events.Event) error {
			select {
			case arrivals <- arrival{event: e}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		select {
		case arrivals <- arrival{err: err}:
		case <-ctx.Done():
		}
	}()
	return arrivals
}

// session is a loop with its projection open.
type session struct {
	*loop
	db    *projection.DB
	lease *lease
	// target is the sequence that must be folded before the next decision: what was there at the start, and
	// what the last decision put on the log.
	target uint64
	closed bool
	wake   time.Time
}

// idleCheck is how often a decider looks at its lease when nothing happens.
const idleCheck = time.Second

func (s *session) follow(ctx context.Context, arrivals <-chan arrival) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lastEvent := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-arrivals:
			if err := s.fold(a, arrivals); err != nil {
				return err
			}
			lastEvent = time.Now()
		case <-timer.C:
		}
		decided, err := s.decide(ctx)
		if err != nil {
			return err
		}
		if s.closed && !decided && s.wake.IsZero() && time.Since(lastEvent) > restAfter {
			return nil
		}
		timer.Reset(s.pause())
	}
}

// pause is how long to wait for an event before deciding again.
func (s *session) pause() time.Duration {
	if s.wake.IsZero() {
		return idleCheck
	}
	return max(0, min(idleCheck, time.Until(s.wake)))
}

// batchEvents bounds the events that are folded in one transaction.
const batchEvents = 512

// fold takes an event and those that wait behind it into the projection, in one transaction.
func (s *session) fold(first arrival, more <-chan arrival) error {
	tx := s.db.Begin()
	seq := s.db.Seq()
	var err error
	for a, n := first, 1; ; n++ {
		if err = a.err; err == nil {
			err = s.apply(tx, a.event)
		}
		if err != nil {
			break
		}
		seq = a.event.Seq
		if n == batchEvents || len(more) == 0 {
			break
		}
		a = <-more
	}
	if err != nil {
		tx.Discard()
		return err
	}
	return s.db.Commit(tx, seq)
}

func (s *session) apply(tx *projection.Tx, e events.Event) error {
	s.closed = s.closed || e.Type == events.RunClosedType
	return applyEvent(tx, s.decider, s.emits, e)
}

// applyEvent folds one event and keeps the tail of its chain where the service may have to append to it.
func applyEvent(tx *projection.Tx, d Decider, emits map[string]bool, e events.Event) error {
	if emits[e.Type.Kind()] {
		if err := projection.Put(tx, tailKey(e), e.Seq); err != nil {
			return err
		}
	}
	if err := d.Apply(tx, e); err != nil {
		return fmt.Errorf("fold sequence %d: %w", e.Seq, err)
	}
	return nil
}

// decide lets the decider decide, when this process holds the lease and has folded all there is, and publishes.
func (s *session) decide(ctx context.Context) (decided bool, err error) {
	if s.db.Seq() < s.target || !s.lease.held() {
		return false, nil
	}
	if s.lease.fresh() {
		// Another process decided until now: fold what it has left before deciding anything.
		in, err := s.env.Log.Incarnation(ctx, s.run)
		if err != nil {
			return false, err
		}
		s.lease.settled()
		if s.target = max(s.target, in.LastSeq); s.db.Seq() < s.target {
			return false, nil
		}
	}
	now := time.Now().UTC()
	facts, wake, err := decideAt(s.db, s.decider, s.source, s.db.Seq(), now)
	s.wake = wake
	if err != nil {
		return false, fmt.Errorf("decide as of %d: %w", s.db.Seq(), err)
	}
	for _, fact := range facts {
		again, err := s.publish(ctx, fact)
		if err != nil || again {
			return true, err
		}
	}
	return len(facts) > 0, nil
}

// publish appends one fact. again: the log holds something else than was decided, so fold it and decide again.
func (s *session) publish(ctx context.Context, fact events.Event) (again bool, err error) {
	if c, ok := s.decider.(Completer); ok {
		if fact, err = c.Complete(ctx, s.db, fact); err != nil {
			return false, err
		}
	}
	stored, adopted, err := s.env.Log.Append(ctx, fact)
	var conflict *conflictError
	if errors.As(err, &conflict) {
		s.target = max(s.target, conflict.Winner.Seq)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s.target = max(s.target, stored.Seq)
	return adopted && string(stored.Data) != string(fact.Data), nil
}
