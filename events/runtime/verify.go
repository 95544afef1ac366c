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
// with the fact's clock, and reports what comes out differently. It reads the log and nothing local.
func Verify(ctx context.Context, log *eventlog.Log, run, service, instance string, d Decider, report func(Difference)) (checked int, err error) {
	decided, err := decidedFacts(ctx, log, run, source(service, instance))
	if err != nil || len(decided) == 0 {
		return 0, err
	}
	db, err := projection.Memory()
	if err != nil {
		return 0, err
	}
	defer db.Close()
	v := &verification{ctx: ctx, db: db, decider: d, source: source(service, instance), emits: emittedKinds(service), report: report}
	if err := v.decisions(&decided, 0); err != nil {
		return v.checked, err
	}
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return v.checked, err
		}
		if err := v.apply(e); err != nil {
			return v.checked, err
		}
		if err := v.decisions(&decided, e.Seq); err != nil || len(decided) == 0 {
			return v.checked, err
		}
	}
	return v.checked, nil
}

// decidedFacts reads the facts that a decider stated, in the order of what they were decided on.
func decidedFacts(ctx context.Context, log *eventlog.Log, run, source string) ([]events.Event, error) {
	var facts []events.Event
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return nil, err
		}
		if e.Source == source && !e.DecidedAt.IsZero() {
			facts = append(facts, e)
		}
	}
	slices.SortStableFunc(facts, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(a.AsOf, b.AsOf), a.DecidedAt.Compare(b.DecidedAt), cmp.Compare(a.Seq, b.Seq))
	})
	return facts, nil
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

func (v *verification) apply(e events.Event) error {
	tx := v.db.Begin()
	if err := applyEvent(tx, v.decider, v.emits, e); err != nil {
		tx.Discard()
		return err
	}
	return v.db.Commit(tx, e.Seq)
}

// decisions makes all decisions again that were made as of a sequence.
func (v *verification) decisions(decided *[]events.Event, asOf uint64) error {
	for len(*decided) > 0 && (*decided)[0].AsOf == asOf {
		at := (*decided)[0].DecidedAt
		n := 0
		for n < len(*decided) && (*decided)[n].AsOf == asOf && (*decided)[n].DecidedAt.Equal(at) {
			n++
		}
		if err := v.again((*decided)[:n], asOf, at); err != nil {
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
