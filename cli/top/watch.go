package top

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/evaluation/steps"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

const (
	maxFollowed = 16 // runs, open ones first
	maxRewards  = 60 // of a run, the last ones
)

// watcher follows a plane.
type watcher struct {
	p         *plane.Plane
	where     string
	catalogue *catalogue
	mu        sync.Mutex
	runs      map[string]*followed
	unknown   map[string]string // part → why it is missing
	wholeOnce bool              // all that was there at the start has been read
}

// followed is a run whose log is read.
type followed struct {
	mu       sync.Mutex
	fold     *steps.Fold
	last     *steps.Row
	rewards  []float64
	through  uint64 // the sequence that is folded
	problem  error
	read     bool // to the end that the log had when it was looked at first
	stop     context.CancelFunc
	archived bool
}

func newWatcher(p *plane.Plane, where string) *watcher {
	return &watcher{p: p, where: where, catalogue: newCatalogue(), runs: map[string]*followed{},
		unknown: map[string]string{}}
}

// read folds all that is recorded now, for a look that ends.
func (w *watcher) read(ctx context.Context) error {
	if err := w.catalogue.catchUp(ctx, w.p.Log); err != nil {
		return err
	}
	names, _ := w.catalogue.selectRuns(maxFollowed)
	for _, name := range names {
		f := newFollowed()
		w.runs[name] = f
		f.problem = f.catchUp(ctx, w.p.Log, name)
	}
	return ctx.Err()
}

// each hands the events that a run's log has now to fn, from a sequence on.
func each(ctx context.Context, log *eventlog.Log, run string, from uint64, fn func(events.Event) error) error {
	for e, err := range log.All(ctx, run, from) {
		if err == nil {
			err = fn(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// follow follows the catalogue and its runs until the context ends.
func (w *watcher) follow(ctx context.Context) {
	go func() {
		for ; ctx.Err() == nil; retry.Sleep(ctx, time.Second) {
			err := w.catalogue.catchUp(ctx, w.p.Log)
			if err == nil {
				err = w.p.Log.Follow(ctx, events.Catalogue, w.catalogue.through+1, "", w.catalogue.apply)
			}
			w.tell("the catalogue", err)
		}
	}()
	for ; ctx.Err() == nil; retry.Sleep(ctx, time.Second) {
		names, _ := w.catalogue.selectRuns(maxFollowed)
		w.mu.Lock()
		for name, f := range w.runs {
			if !slices.Contains(names, name) {
				f.stop()
				delete(w.runs, name)
			}
		}
		for _, name := range names {
			if w.runs[name] == nil {
				w.runs[name] = newFollowed()
				var running context.Context
				running, w.runs[name].stop = context.WithCancel(ctx)
				go w.runs[name].follow(running, w.p.Log, name)
			}
		}
		w.mu.Unlock()
	}
}

// tell notes why a part cannot be shown.
func (w *watcher) tell(part string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || errors.Is(err, context.Canceled) {
		delete(w.unknown, part)
		return
	}
	w.unknown[part] = err.Error()
}

func newFollowed() *followed {
	f := &followed{stop: func() {}}
	f.fold = steps.New("", func(r steps.Row) error {
		f.last = &r
		if f.rewards = append(f.rewards, r.Figures["reward/mean"]); len(f.rewards) > maxRewards {
			f.rewards = slices.Delete(f.rewards, 0, len(f.rewards)-maxRewards)
		}
		return nil
	})
	return f
}

// follow folds the run's log until the context ends.
func (f *followed) follow(ctx context.Context, log *eventlog.Log, run string) {
	for ; ctx.Err() == nil; retry.Sleep(ctx, time.Second) {
		err := f.catchUp(ctx, log, run)
		if err == nil {
			err = log.Follow(ctx, run, f.through+1, "", f.take)
		}
		if errors.Is(err, eventlog.ErrNotFound) { // its stream was deleted
			f.mu.Lock()
			f.archived, f.problem = true, nil
			f.mu.Unlock()
			_ = each(ctx, log, run, f.through+1, f.take)
			return
		}
		f.mu.Lock()
		f.problem = err
		f.mu.Unlock()
	}
}

// catchUp folds what the run's log has now.
func (f *followed) catchUp(ctx context.Context, log *eventlog.Log, run string) error {
	err := each(ctx, log, run, f.through+1, f.take)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = f.read || err == nil
	return err
}

// take folds an event.
func (f *followed) take(e events.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.through, f.problem = e.Seq, nil
	return f.fold.Apply(e)
}

// snapshot is the run as it is folded.
func (f *followed) snapshot(name string) Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := Run{Name: name, Policy: f.fold.Policy(), Flight: f.fold.Flight(), Last: f.last,
		Rewards: slices.Clone(f.rewards)}
	r.State, r.Reason = f.fold.State()
	if f.archived {
		r.State = "archived"
	}
	if !f.read && f.problem == nil {
		r.State = stateReading
	}
	if f.problem != nil && !errors.Is(f.problem, context.Canceled) {
		r.Unreadable = app.Line(f.problem.Error(), 300)
	}
	return r
}

// snapshot looks at everything.
func (w *watcher) snapshot(ctx context.Context) Snapshot {
	s := Snapshot{At: time.Now(), Where: w.where, Runs: []Run{}}
	reading := !w.catalogue.isRead() // before its runs are listed
	var names []string
	names, s.More = w.catalogue.selectRuns(maxFollowed)
	w.catalogue.fill(&s)
	outages, err := plane.OutagesOf(ctx, w.p)
	s.Outages = outages
	w.tell("outages", err)
	s.Consumers, err = w.consumers(ctx, names)
	w.tell("consumers", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if f := w.runs[name]; f != nil {
			s.Runs = append(s.Runs, f.snapshot(name))
			reading = reading || s.Runs[len(s.Runs)-1].State == stateReading
		} else {
			reading = true
		}
	}
	w.wholeOnce = w.wholeOnce || !reading // a run that is opened later changes little
	s.Reading = !w.wholeOnce
	for _, part := range app.SortedKeys(w.unknown) {
		s.Unknown = append(s.Unknown, app.Line(part+": "+w.unknown[part], 300))
	}
	return s
}

// consumers asks the server for the backlog of each durable consumer of the plane's streams and of
// the runs that are shown.
func (w *watcher) consumers(ctx context.Context, runs []string) ([]Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	streams := w.p.Log.JetStream().ListStreams(ctx)
	list := []Consumer{}
	for info := range streams.Info() {
		run, ofRun := events.RunOfStream(info.Config.Name)
		if ofRun && events.ValidRun(run) && !slices.Contains(runs, run) {
			continue
		}
		stream, err := w.p.Log.JetStream().Stream(ctx, info.Config.Name)
		if err != nil {
			return list, err
		}
		found := stream.ListConsumers(ctx)
		for c := range found.Info() {
			if c.Config.Durable != "" { // others are of readers, such as this one
				list = append(list, Consumer{info.Config.Name, c.Name, c.NumPending, c.NumAckPending, c.NumRedelivered})
			}
		}
		if err := found.Err(); err != nil {
			return list, err
		}
	}
	slices.SortFunc(list, func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Taken, a.Taken), cmp.Compare(a.Stream, b.Stream),
			cmp.Compare(a.Name, b.Name))
	})
	return list, streams.Err()
}
