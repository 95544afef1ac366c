package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Rerun makes a new run of a recorded one: what services did to the world is copied, and some
// deciding services decide again, under another configuration.
//
// The clock is the recorded one: each decision is made as soon as its last cause is on the log, at
// that cause's time. A feed's trainer takes a batch when the recorded one took one, or as soon as
// there is one if that is later; of a feed that the recorded run did not have, at once. So the new
// run depends on the recorded one and on the configuration alone, and doing it again, after a crash
// for example, gives the same.
type Rerun struct {
	Log      *eventlog.Log
	From, To string // names of the runs
	Config   runfile.RunConfig
	// Deciders of the new run, by service and instance. What these services stated is
	// decided again, all else copied.
	Deciders map[string]map[string]Decider
	// Outcome, if set, scores rollouts again: it gives what takes the place of a recorded outcome,
	// a fact of the new run that the scorer states, or nil where the recorded one is copied. It is
	// called in the order of the log.
	Outcome func(ctx context.Context, recorded events.Event) (*events.Event, error)
	// Until is the last sequence of the recorded run that is copied; 0 copies all.
	Until uint64
	// Progress, if set, is told of each recorded event.
	Progress func(seq uint64)
}

// RerunResult counts what is on the new log.
type RerunResult struct {
	Copied  int            `json:"copied"`
	Decided map[string]int `json:"decided"` // or scored again, by type
}

// copiedSource begins the source of copied facts: they are nobody's decision in the new run.
const copiedSource = "replay/"

// OriginalSource says who stated a fact, also of one that a replay, or a
// replay of a replay, copied.
func OriginalSource(e events.Event) string {
	source := e.Source
	for copied := true; copied; {
		source, copied = strings.CutPrefix(source, copiedSource)
	}
	return source
}

// ErrRunExists means that the new run's name is taken.
var ErrRunExists = errors.New("there is a run of this name already")

// Run makes the new run, whole, and lists it in the catalogue when it is complete: no
// service works on it before.
func (r *Rerun) Run(ctx context.Context) (RerunResult, error) {
	w := &rerun{Rerun: r, ctx: ctx, tails: map[string]uint64{}, feeds: map[string]*pace{}, flying: map[string]bool{},
		result: RerunResult{Decided: map[string]int{}}}
	defer w.close()
	if err := w.open(); err != nil {
		return w.result, err
	}
	for e, err := range r.Log.All(ctx, r.From, 1) {
		if err != nil {
			return w.result, err
		}
		if r.Until > 0 && e.Seq > r.Until {
			break
		}
		if err := w.event(e); err != nil {
			return w.result, fmt.Errorf("replay %s at sequence %d: %w", e.ID, e.Seq, err)
		}
	}
	return w.result, w.end()
}

// rerun is a Rerun at work.
type rerun struct {
	*Rerun
	ctx      context.Context
	deciders []*redecider
	again    map[events.Type]bool // types that are decided again
	tails    map[string]uint64    // chain → its last link on the new log
	feeds    map[string]*pace
	flying   map[string]bool // rollouts without an outcome
	recorded runfile.RunConfig
	seq      uint64 // last one on the new log
	now      time.Time
	closed   bool
	before   earlier
	grown    int64 // bytes since the new run's stream was looked at
	result   RerunResult
}

// redecider is a decider with what it has folded of the new run.
type redecider struct {
	Decider
	source string
	emits  map[string]bool
	db     *projection.DB
	wake   time.Time
	rest   rest
}

func (w *rerun) open() error {
	var err error
	if w.recorded, err = w.Log.RecordedConfig(w.ctx, w.From); err != nil {
		return err
	}
	for _, f := range w.Config.Feeds {
		known := slices.ContainsFunc(w.recorded.Feeds, func(g runfile.Feed) bool { return g.Name == f.Name })
		w.feeds[f.Name] = &pace{free: !known}
	}
	w.again = map[events.Type]bool{}
	for _, s := range topology.Services {
		for instance, d := range w.Deciders[s.Name] {
			db, err := projection.Memory()
			if err != nil {
				return err
			}
			w.deciders = append(w.deciders, &redecider{Decider: d, source: source(s.Name, instance),
				emits: emittedKinds(s.Name), db: db})
		}
		if w.Deciders[s.Name] != nil {
			for _, t := range s.Emits {
				// others' pauses are no decisions, nor is what outages cost
				w.again[t] = t != events.StageWaitedType &&
					(t != events.RunPausedType || s.Name == topology.QuerySampler || w.again[t])
			}
		}
	}
	slices.SortFunc(w.deciders, func(a, b *redecider) int { return cmp.Compare(a.source, b.source) })
	if err := w.Log.Streams.EnsureRunFor(w.ctx, w.To, w.Config.Log); err != nil {
		return err
	}
	return w.lookBack()
}

func (w *rerun) close() {
	w.forget()
	for _, d := range w.deciders {
		d.db.Close()
	}
}

// event copies one recorded event, or what takes its place, and makes the
// decisions that follow from it.
func (w *rerun) event(e events.Event) error {
	if e.Type != events.StageWaitedType { // until it is folded nobody is overdue by the time that it is about
		if err := w.sleepers(e.Time); err != nil {
			return err
		}
	}
	if e.Time.After(w.now) {
		w.now = e.Time
	}
	if err := w.take(e); err != nil {
		return err
	}
	if w.Progress != nil {
		w.Progress(e.Seq)
	}
	switch e.Type {
	case events.RolloutStartedType, events.RolloutCopiedType, events.PieceSampledType, events.TurnSampledType,
		events.ToolsCompletedType, events.RolloutObservedType,
		events.StepFinishedType, events.StepScoredType, events.RolloutRetriedType:
		return nil // no decision waits for these
	}
	return w.settle()
}

// append puts a fact on the new log and lets all deciders fold it.
func (w *rerun) append(e events.Event) (events.Event, error) {
	e.Prev = w.tails[e.Chain()]
	stored, found, err := w.there(e)
	if err == nil && !found {
		stored, _, err = w.Log.Appender.Append(w.ctx, e)
	}
	if err == nil && !found {
		err = w.room(stored)
	}
	if err != nil {
		return stored, err
	}
	w.tails[e.Chain()], w.seq = stored.Seq, max(w.seq, stored.Seq)
	switch e.Type {
	case events.RolloutStartedType:
		w.flying[e.Entity] = true
	case events.RolloutScoredType, events.RolloutFailedType:
		delete(w.flying, e.Entity)
	}
	for _, d := range w.deciders {
		tx := d.db.Begin()
		if err := applyEvent(tx, d, d.emits, stored); err != nil {
			tx.Discard()
			return stored, err
		}
		if err := d.db.Commit(tx, stored.Seq); err != nil {
			return stored, err
		}
	}
	return stored, nil
}

// mostDecisions bounds what may follow from one event: a decider that decides
// without end is at fault.
const mostDecisions = 100_000

// settle decides until nothing follows any more.
func (w *rerun) settle() error {
	for range mostDecisions {
		more := false
		for _, d := range w.deciders {
			n, err := w.decide(d)
			if err != nil {
				return err
			}
			more = more || n > 0
		}
		if !more {
			return nil
		}
	}
	return fmt.Errorf("the deciders did not come to rest after %d decisions", mostDecisions)
}

func (w *rerun) decide(d *redecider) (n int, err error) {
	facts, wake, err := d.rest.decideAt(d.db, d.Decider, d.source, w.seq, w.now.UTC())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", d.source, err)
	}
	d.wake = wake
	for i := range facts {
		if c, ok := d.Decider.(Completer); ok {
			if facts[i], err = c.Complete(w.ctx, d.db, facts[i]); err != nil {
				return 0, fmt.Errorf("%s: %w", d.source, err)
			}
		}
	}
	for _, fact := range facts {
		if _, err := w.append(fact); err != nil {
			return 0, err
		}
		w.result.Decided[string(fact.Type)]++
		if err := w.trainerSees(fact); err != nil {
			return 0, err
		}
	}
	return len(facts), nil
}

// sleepers makes the decisions that deciders wanted to make before a time.
func (w *rerun) sleepers(before time.Time) error {
	for {
		var next *redecider
		for _, d := range w.deciders {
			if d.wake.After(w.now) && d.wake.Before(before) && (next == nil || d.wake.Before(next.wake)) {
				next = d
			}
		}
		if next == nil {
			return nil
		}
		w.now = next.wake
		if err := w.settle(); err != nil {
			return err
		}
	}
}
