package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// verifier is one decider that folds a run again.
type verifier struct {
	Decider
	ctx     context.Context
	source  string
	folder  string // its source as a file's name
	emits   map[string]bool
	db      *projection.DB
	report  func(Difference)
	found   []Difference   // and not told yet
	waiting []events.Event // facts whose decision is not reached yet, in the order of their decisions
	checked int
	late    int // facts left to the second read

	// The decision that was made again last: its facts by identity, void when
	// something was folded since.
	decided map[string]events.Event
	asOf    uint64
	at      time.Time
}

// decisions orders facts by what they were decided on, and when.
func decisions(a, b events.Event) int {
	return cmp.Or(cmp.Compare(a.AsOf, b.AsOf), a.DecidedAt.Compare(b.DecidedAt), cmp.Compare(a.Seq, b.Seq))
}

// wait keeps a fact until the fold has come to its decision.
func (v *verifier) wait(e events.Event) {
	at, _ := slices.BinarySearchFunc(v.waiting, e, decisions)
	v.waiting = slices.Insert(v.waiting, at, e)
}

// fold folds events, and before each of them checks the facts that were decided by then.
func (v *verifier) fold(all []events.Event) error {
	for len(all) > 0 {
		for len(v.waiting) > 0 && v.waiting[0].AsOf < all[0].Seq {
			fact := v.waiting[0]
			v.waiting[0] = events.Event{}
			v.waiting = v.waiting[1:]
			if err := v.check(fact); err != nil {
				return err
			}
		}
		n := min(len(all), batchEvents)
		if len(v.waiting) > 0 { // one transaction goes up to the next decision
			if at := slices.IndexFunc(all[:n], func(e events.Event) bool { return v.waiting[0].AsOf < e.Seq }); at > 0 {
				n = at
			}
		}
		if err := v.apply(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

func (v *verifier) apply(all []events.Event) error {
	v.decided = nil
	tx := v.db.Begin()
	for _, e := range all {
		if err := applyEvent(tx, v, v.emits, e); err != nil {
			tx.Discard()
			return err
		}
	}
	return v.db.Commit(tx, all[len(all)-1].Seq)
}

// check makes the decision behind a fact again and compares. A decider that died or lost a race
// has stated only some of what it decided, so recomputed facts may be missing on the log, but
// not the other way round.
func (v *verifier) check(want events.Event) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	if v.decided == nil || v.asOf != want.AsOf || !v.at.Equal(want.DecidedAt) {
		facts, _, err := decideAt(v.db, v, v.source, want.AsOf, want.DecidedAt)
		if err != nil {
			return fmt.Errorf("decide as of %d: %w", want.AsOf, err)
		}
		v.decided, v.asOf, v.at = make(map[string]events.Event, len(facts)), want.AsOf, want.DecidedAt
		for _, fact := range facts {
			v.decided[fact.ID] = fact
		}
	}
	got, ok := v.decided[want.ID]
	if !ok {
		v.differs(want, "event", "stated", "not decided")
		return nil
	}
	if c, ok := v.Decider.(Completer); ok {
		var err error
		if got, err = c.Complete(v.ctx, v.db, got); err != nil {
			return fmt.Errorf("complete %s: %w", want.ID, err)
		}
	}
	v.checked++
	for _, d := range Differences(want, got) {
		v.report(d)
	}
	return nil
}

// differs counts a fact and reports what is wrong with it.
func (v *verifier) differs(e events.Event, field, recorded, recomputed string) {
	v.checked++
	v.report(Difference{Event: e.ID, Sequence: e.Seq, Field: field, Recorded: recorded, Recomputed: recomputed})
}
