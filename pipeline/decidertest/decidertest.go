// Package decidertest drives a decider without a server: given events, which facts?
package decidertest

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Log is a run's log in memory, with a decider that folds it.
type Log struct {
	t       testing.TB
	run     string
	decider pipeline.Decider
	db      *projection.DB
	// Now is the clock of the next decision.
	Now time.Time
	// Wake is when the last decision wanted to be made again.
	Wake time.Time
	// Events is what is on the log.
	Events []events.Event
}

// New makes an empty log.
func New(t testing.TB, run string, d pipeline.Decider) *Log {
	t.Helper()
	db, err := projection.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Log{t: t, run: run, decider: d, db: db, Now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
}

// View is the folded state.
func (l *Log) View() projection.View { return l.db }

// Happen puts an event on the log that others state.
func (l *Log) Happen(t events.Type, entity string, data any) events.Event {
	l.t.Helper()
	e, err := events.New(l.run, t, entity, events.Ordinal(len(l.Events)), data)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.put(e)
}

// Put puts an event of another log on this one, as it stood there.
func (l *Log) Put(e events.Event) {
	l.t.Helper()
	l.fold(e)
}

func (l *Log) put(e events.Event) events.Event {
	l.t.Helper()
	e.Seq, e.Time = uint64(len(l.Events)+1), l.Now
	return l.fold(e)
}

func (l *Log) fold(e events.Event) events.Event {
	l.t.Helper()
	tx := l.db.Begin()
	if err := l.decider.Apply(tx, e); err != nil {
		l.t.Fatalf("fold %s: %v", e.ID, err)
	}
	if err := l.db.Commit(tx, e.Seq); err != nil {
		l.t.Fatal(err)
	}
	l.Events = append(l.Events, e)
	return e
}

// Decide asks for a decision and puts nothing on the log. A decision that is made
// twice must come out the same.
func (l *Log) Decide() []events.Event {
	l.t.Helper()
	facts, wake, err := l.decider.Decide(l.db, l.db.Seq(), l.Now)
	if err != nil {
		l.t.Fatalf("decide as of %d: %v", l.db.Seq(), err)
	}
	again, wakeAgain, err := l.decider.Decide(l.db, l.db.Seq(), l.Now)
	if err != nil || !wake.Equal(wakeAgain) || !reflect.DeepEqual(facts, again) {
		l.t.Fatalf("deciding again as of %d gives something else: %v, then %v, %v", l.db.Seq(), facts, again, err)
	}
	l.Wake = wake
	return facts
}

// Cost is how many allocations a decision takes. It is the least of many: pools of the store are
// emptied now and then, by the race detector more often.
func (l *Log) Cost() float64 {
	least := math.Inf(1)
	for range 30 {
		least = min(least, testing.AllocsPerRun(1, func() { l.Decide() }))
	}
	return least
}

// Settle decides and puts the facts on the log until nothing more follows, and returns them.
func (l *Log) Settle() (stated []events.Event) {
	l.t.Helper()
	for range 1000 {
		facts := l.Decide()
		if len(facts) == 0 {
			return stated
		}
		chains := map[string]bool{}
		for _, fact := range facts {
			if chains[fact.Chain()] {
				continue // it waits for the next decision, as on the real log
			}
			chains[fact.Chain()] = true
			stated = append(stated, l.put(l.complete(fact)))
		}
	}
	l.t.Fatal("the decider never comes to rest")
	return nil
}

func (l *Log) complete(fact events.Event) events.Event {
	l.t.Helper()
	c, ok := l.decider.(pipeline.Completer)
	if !ok {
		return fact
	}
	completed, err := c.Complete(context.Background(), l.db, fact)
	if err != nil {
		l.t.Fatalf("complete %s: %v", fact.ID, err)
	}
	return completed
}

// Names writes facts as "group.opened g000001", for comparing.
func Names(facts []events.Event) []string {
	names := []string{}
	for _, f := range facts {
		names = append(names, string(f.Type)+" "+f.Entity)
	}
	return names
}

// Data is the payload of a fact.
func Data[T any](t testing.TB, e events.Event) T {
	t.Helper()
	v, err := events.Data[T](e)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
