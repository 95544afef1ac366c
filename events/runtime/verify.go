package runtime

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Difference is a decided fact that does not come out again.
type Difference struct {
	Event      string `json:"event"`
	Sequence   uint64 `json:"sequence"`
	Field      string `json:"field"`
	Recorded   string `json:"recorded"`
	Recomputed string `json:"recomputed"`
}

// Verify makes every decision of one decider of a run again, from the log as it was at the fact's as_of and
// with the fact's clock, and reports what comes out differently. It reads the log and nothing local. Facts under
// the decider's name that no decision can have led to are differences, too.
func Verify(ctx context.Context, log *eventlog.Log, run, service, instance string, d Decider, report func(Difference)) (checked int, err error) {
	db, err := projection.Memory()
	if err != nil {
		return 0, err
	}
	defer db.Close()
	v := &verification{ctx: ctx, db: db, decider: d, source: source(service, instance), emits: emittedKinds(service), report: report}
	decided, err := v.decided(log, run)
	if err != nil || len(decided) == 0 {
		return v.checked, err
	}
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return v.checked, err
		}
		if err := v.decisions(&decided, e.Seq); err != nil || len(decided) == 0 {
			return v.checked, err
		}
		if err := v.apply(e); err != nil {
			return v.checked, err
		}
	}
	return v.checked, nil
}

type verification struct {
	ctx     context.Context
	db      *projection.DB
	decider Decider
	source  string
	emits   map[string]bool
	report  func(Difference)
	checked int
}

// decided reads the facts that the decider stated, in the order of what they were decided on, and reports those
// that do not say it, or that claim to be decided on what came after them.
func (v *verification) decided(log *eventlog.Log, run string) (facts []events.Event, err error) {
	differs := func(e events.Event, field, recorded, recomputed string) {
		v.checked++
		v.report(Difference{Event: e.ID, Sequence: e.Seq, Field: field, Recorded: recorded, Recomputed: recomputed})
	}
	for e, err := range log.All(v.ctx, run, 1) {
		switch {
		case err != nil:
			return nil, err
		case e.Source != v.source:
		case e.DecidedAt.IsZero():
			differs(e, "decided_at", "none", "the decision's clock")
		case e.AsOf >= e.Seq:
			differs(e, "as_of", fmt.Sprint(e.AsOf), fmt.Sprintf("less than %d", e.Seq))
		default:
			facts = append(facts, e)
		}
	}
	slices.SortStableFunc(facts, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(a.AsOf, b.AsOf), a.DecidedAt.Compare(b.DecidedAt), cmp.Compare(a.Seq, b.Seq))
	})
	return facts, nil
}

func (v *verification) apply(e events.Event) error {
	tx := v.db.Begin()
	if err := applyEvent(tx, v.decider, v.emits, e); err != nil {
		tx.Discard()
		return err
	}
	return v.db.Commit(tx, e.Seq)
}

// decisions makes all decisions again that were made before the event of a sequence was folded.
func (v *verification) decisions(decided *[]events.Event, before uint64) error {
	for len(*decided) > 0 && (*decided)[0].AsOf < before {
		first, n := (*decided)[0], 0
		for n < len(*decided) && (*decided)[n].AsOf == first.AsOf && (*decided)[n].DecidedAt.Equal(first.DecidedAt) {
			n++
		}
		if err := v.again((*decided)[:n], first.AsOf, first.DecidedAt); err != nil {
			return err
		}
		*decided = (*decided)[n:]
	}
	return nil
}

// again makes one decision again and compares. A decider that died or lost a race has stated only some of what
// it decided, so recomputed facts may be missing on the log, but not the other way round.
func (v *verification) again(recorded []events.Event, asOf uint64, at time.Time) error {
	facts, _, err := decideAt(v.db, v.decider, v.source, asOf, at)
	if err != nil {
		return fmt.Errorf("decide as of %d: %w", asOf, err)
	}
	recomputed := map[string]events.Event{}
	for _, fact := range facts {
		recomputed[fact.ID] = fact
	}
	for _, want := range recorded {
		v.checked++
		got, ok := recomputed[want.ID]
		if !ok {
			v.report(Difference{Event: want.ID, Sequence: want.Seq, Field: "event", Recorded: "stated", Recomputed: "not decided"})
			continue
		}
		if c, ok := v.decider.(Completer); ok {
			if got, err = c.Complete(v.ctx, v.db, got); err != nil {
				return err
			}
		}
		v.compare(want, got)
	}
	return nil
}

func (v *verification) compare(want, got events.Event) {
	for _, f := range []struct{ field, recorded, recomputed string }{
		{"data", string(want.Data), string(got.Data)},
		{"subject", want.Subject(), got.Subject()},
		{"prev", fmt.Sprint(want.Prev), fmt.Sprint(got.Prev)},
	} {
		if f.recorded != f.recomputed {
			v.report(Difference{Event: want.ID, Sequence: want.Seq, Field: f.field, Recorded: f.recorded, Recomputed: f.recomputed})
		}
	}
}
