package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Decider folds a run and decides from what it has folded. Both functions are pure: what they read
// is the state, the event, the sequence and the clock that they are given.
type Decider interface {
	// Apply folds one event. Types that it does not know are skipped.
	Apply(tx *projection.Tx, e events.Event) error
	// Decide says which facts follow from the state. A decision that is not on the log
	// yet is made again by the next call. wake asks for another call at that time, zero
	// only when something happens.
	Decide(v projection.View, asOf uint64, now time.Time) (facts []events.Event, wake time.Time, err error)
}

// Mover is a Decider for which a decision is a long scan. LastChange is the sequence of the last
// event that a decision may follow from: a Mover that decided nothing, and asked for no time, is
// asked again when LastChange has changed.
type Mover interface {
	LastChange(v projection.View) (uint64, error)
}

// Completer is a Decider whose facts name files. Complete does the deterministic part that needs
// the store: the same state and fact give the same bytes.
type Completer interface {
	Complete(ctx context.Context, v projection.View, fact events.Event) (events.Event, error)
}

// Deciding is a deciding service: for every run, its deciders by instance
// name ("" for the only one).
type Deciding struct {
	Name string
	New  func(run string, cfg runfile.RunConfig) (map[string]Decider, error)
	// Watch, if set, is told how each run goes.
	Watch Watcher
}

// RunDeciding runs a deciding service over all runs until the context ends. A closed run is left
// when it has come to rest.
func RunDeciding(ctx context.Context, env Env, d Deciding) error {
	leases, err := newLeases(ctx, env, d.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	left := newEnds(env, d.Name)
	var wg sync.WaitGroup
	defer wg.Wait()
	known := map[string]*decidedRun{}
	return watchRuns(ctx, env, func(r run) {
		maps.DeleteFunc(known, func(_ string, w *decidedRun) bool { return w.ended.Load() })
		w := known[r.name]
		if w == nil && r.closed && r.cfg.GroupSize == 0 {
			return // its deciders have left it, or its opening cannot be read and nothing was ever decided
		}
		if w == nil {
			w = &decidedRun{env: env, service: d, leases: leases, left: left, run: r.name}
			known[r.name] = w
			wg.Go(func() { w.work(ctx, r.cfg) })
		}
		w.closed.Store(r.closed)
	}, func() {})
}

// decidedRun is a run with a service's deciders for it.
type decidedRun struct {
	env     Env
	service Deciding
	leases  *leases
	left    *ends
	run     string
	closed  atomic.Bool // by the catalogue
	ended   atomic.Bool
}

// work lets the run's deciders work until the context ends or the run is over. A run whose stream
// was made again is another one.
func (w *decidedRun) work(ctx context.Context, cfg runfile.RunConfig) {
	defer w.ended.Store(true)
	defer w.env.Log.Streams.Release(w.run)
	w.env.Logger.Info("run deciding started", "service", w.service.Name, "run", w.run)
	var failures streak
	for {
		err := w.decide(ctx, cfg)
		if ctx.Err() != nil {
			return
		}
		if streamDeleted(err) && w.closed.Load() {
			w.forget(cfg)
			err = nil
		}
		if err == nil {
			w.env.Logger.Info("run deciding ended", "service", w.service.Name, "run", w.run)
			return
		}
		w.env.Logger.Warn("run deciding interrupted", "service", w.service.Name, "run", w.run, "error", err)
		failures.failed(ctx, w.env, w.run, w.service.Name, err)
		if !errors.Is(err, eventlog.ErrReplaced) && !retry.Sleep(ctx, beginAgain.Most) {
			return
		}
		if latest, err := w.env.Log.Config(ctx, w.run); err == nil {
			cfg = latest
		}
	}
}

// decide runs the deciders of one incarnation of the run.
func (w *decidedRun) decide(ctx context.Context, cfg runfile.RunConfig) (err error) {
	defer guard(w.service.Name, &err)
	deciders, err := w.service.New(w.run, cfg)
	if err != nil {
		return ofRun(err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for instance, decider := range deciders {
		l := newLoop(w.env, w.service.Name, w.run, instance, decider, w.leases)
		l.watcher, l.left = w.service.Watch, w.left
		group.Go(func() error { return l.keep(ctx) })
	}
	return group.Wait()
}

// forget removes what is kept of a deleted run. What cannot be removed is in nobody's way.
func (w *decidedRun) forget(cfg runfile.RunConfig) {
	deciders, err := w.service.New(w.run, cfg)
	if err != nil {
		return
	}
	for instance, d := range deciders {
		_ = os.RemoveAll(newLoop(w.env, w.service.Name, w.run, instance, d, w.leases).dir)
	}
	_ = os.Remove(projectionsOf(w.env, w.run)) // empty when no other service keeps anything
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
	service string
	source  string
	decider Decider
	emits   map[string]bool
	leases  *leases
	left    *ends
	dir     string
	watcher Watcher
	// failures are those of the run's own since the last decision.
	failures streak
	// failed: it did not decide since it last failed.
	failed bool
}

func newLoop(env Env, service, runName, instance string, d Decider, l *leases) *loop {
	folder := service
	if instance != "" {
		folder += "-" + instance
	}
	return &loop{
		env: env, run: runName, service: service, source: source(service, instance), decider: d,
		emits: emittedKinds(service), leases: l,
		dir: filepath.Join(projectionsOf(env, runName), folder),
	}
}

// projectionsOf is where a process keeps what its deciders have folded of a run.
func projectionsOf(env Env, run string) string { return filepath.Join(env.Dir, "projections", run) }

// keep runs the loop until the context ends or the closed run is at rest, and begins it again after
// faults. An error says that the run's stream is not there, or is another one now.
func (l *loop) keep(ctx context.Context) error {
	return beginAgain.Keep(ctx, func() (bool, error) {
		err := l.work(ctx)
		if ctx.Err() != nil || err == nil || streamDeleted(err) || errors.Is(err, eventlog.ErrReplaced) {
			return true, err
		}
		if projection.Corrupt(err) {
			err = errors.Join(err, os.RemoveAll(l.dir)) // the log has it all
		}
		return false, err
	}, func(err error, wait time.Duration) {
		l.env.Logger.Warn("decider stopped", "decider", l.source, "run", l.run, "retry_in", wait, "error", err)
		l.failed = true
		if !errors.As(err, new(runFault)) { // which pauses the run, and is told there
			l.env.Health.CannotDecide(l.source, l.run, err)
		}
		l.failures.failed(ctx, l.env, l.run, l.source, err)
	})
}

// foldVersion changes when any decider folds differently than before: projections of
// older versions begin again.
const foldVersion = 2

// work folds and decides, and lets go of a closed run at rest.
func (l *loop) work(ctx context.Context) (err error) {
	defer guard(l.source, &err)
	in, err := l.env.Log.Incarnation(ctx, l.run)
	if err != nil || l.left.reached(l.run, l.source, in) {
		return err
	}
	end, err := l.fold(ctx, in)
	if err != nil {
		return err
	}
	_ = os.RemoveAll(l.dir) // what cannot be removed is in nobody's way
	_ = os.Remove(projectionsOf(l.env, l.run))
	if end.Seq > 0 {
		l.left.put(ctx, l.run, l.source, end)
	}
	return nil
}

// fold folds and decides until a closed run is at rest, and gives its end: none where this process
// does not know that nothing is left to decide.
func (l *loop) fold(ctx context.Context, in eventlog.Incarnation) (end atRest, err error) {
	db, err := l.openFolded(ctx, in)
	if err != nil {
		return end, err
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leave := time.Duration(0)
	if l.failed {
		leave = aside
	}
	lease, giveBack := l.leases.hold(ctx, l.run+"/"+l.source, leave)
	defer giveBack()
	s := &session{loop: l, db: db, lease: lease, created: in.Created, target: in.LastSeq, moved: time.Now(),
		watch: watching{watcher: l.watcher, from: in.LastSeq}}
	defer s.unwatch()
	if s.closed, _, err = projection.Get[bool](db, closedKey); err != nil {
		return end, err
	}
	last, _, err := projection.Get[folded](db, foldedKey)
	if err != nil {
		return end, err
	}
	s.latest = last.Time
	if err := s.follow(ctx, l.events(ctx, in, db.Seq()+1)); err != nil {
		return end, err
	}
	if s.quiet == db.Seq() {
		end = atRest{in.Created, s.quiet, foldVersion}
	}
	return end, nil
}

// open opens the decider's projection of one incarnation of the run.
func (l *loop) open(in eventlog.Incarnation) (*projection.DB, error) {
	return projection.Open(l.dir, projection.Identity{
		Stream: events.RunStream(l.run), Created: in.Created, FirstSeq: in.FirstSeq,
		Fold: fmt.Sprintf("%s v%d", l.source, foldVersion),
	})
}
