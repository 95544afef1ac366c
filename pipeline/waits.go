package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Times of what the log is told of waits.
const (
	// lookAtWaits is how often a service looks which of its runs wait for the end of an outage.
	lookAtWaits = 2 * time.Second
	// waitEvery is how often it states that one does.
	waitEvery = 20 * time.Second
	// waitFor is until when, from then on, the time of rollouts does not count: longer than until
	// the next statement, and than inputs rest that are tried again.
	waitFor = time.Minute
	// doubtAfter is from when on an input that waits for what its process finds well waits for
	// something of its own, as an object or a file: that is not the plane's time.
	doubtAfter = time.Minute
)

// inWork are the inputs that a service has in work.
type inWork struct {
	mu     sync.Mutex
	inputs map[*waiting]struct{}
}

// waiting is what one of them waits for.
type waiting struct {
	run   string
	kind  health.Kind // of the outage, "" while there is none
	since time.Time   // zero: it was never parked
}

func (w *inWork) begin(run string) *waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inputs == nil {
		w.inputs = map[*waiting]struct{}{}
	}
	input := &waiting{run: run}
	w.inputs[input] = struct{}{}
	return input
}

func (w *inWork) end(input *waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inputs, input)
}

// park notes what an input waits for; "" is that it is tried again.
func (w *inWork) park(input *waiting, kind health.Kind) {
	if input == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if input.kind = kind; input.since.IsZero() {
		input.since = time.Now()
	}
}

// waits gives the outage that each of the runs with inputs in work waits for. known are the outages
// that the process knows of, and held the one of them that keeps it from storing anything, zero for
// none: an input that is not parked yet may try to get by it.
func (w *inWork) waits(now time.Time, known []health.Outage, held health.Outage) map[string]health.Outage {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := map[string]health.Outage{}
	for input := range w.inputs {
		found := held
		if input.kind != "" {
			i := slices.IndexFunc(known, func(o health.Outage) bool {
				return o.Kind == input.kind && o.Concerns(input.run)
			})
			switch {
			case i >= 0:
				found = known[i]
			case now.Sub(input.since) < doubtAfter:
				found = health.Outage{Kind: input.kind, Since: input.since}
			}
		}
		if before, has := waits[input.run]; found.Kind != "" && (!has || found.Since.Before(before.Since)) {
			waits[input.run] = found
		}
	}
	return waits
}

// stateWaits tells the log, again and again, which runs wait at the service's stage.
func (s *effectService) stateWaits(ctx context.Context) {
	stated := map[string]time.Time{} // by run
	for retry.Sleep(ctx, lookAtWaits) {
		now := time.Now()
		waits := s.inWork.waits(now, s.env.Health.Outages(), s.env.Health.HoldsUp())
		maps.DeleteFunc(stated, func(_ string, at time.Time) bool { return now.Sub(at) >= waitEvery })
		var wg sync.WaitGroup
		for run, outage := range waits {
			if _, lately := stated[run]; lately {
				continue
			}
			stated[run] = now
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, waitEvery)
				defer cancel()
				if _, err := stateWait(ctx, s.env.Log.Appender, run, s.effect.Stage, s.effect.Name, outage.Kind,
					events.Span{Since: outage.Since, Until: now.Add(waitFor)}); err != nil && ctx.Err() == nil {
					s.env.Logger.Debug("wait not stated", "service", s.effect.Name, "run", run, "error", err)
				}
			})
		}
		wg.Wait()
	}
}

// stateWait states that a run waits at a stage, unless somebody has just said as much, and gives
// the statement's sequence.
func stateWait(ctx context.Context, log eventlog.Appender, run, stage, source string, kind health.Kind,
	w events.Span) (seq uint64, err error) {
	e, err := events.New(run, events.StageWaitedType, stage,
		"0", events.StageWaited{Outage: string(kind), Since: w.Since.UTC(), Until: w.Until.Round(0).UTC()})
	if err != nil {
		return 0, err
	}
	for {
		linked, last, err := log.BehindLast(ctx, e)
		if err != nil {
			return 0, err
		}
		if last != nil {
			said, err := events.Data[events.StageWaited](*last)
			if err != nil {
				return 0, err
			}
			if said.Since.Sub(w.Since) < waitEvery && w.Until.Sub(said.Until) < waitEvery/2 {
				return last.Seq, nil
			}
		}
		linked.ID = events.ID(run, events.StageWaitedType, stage, events.Ordinal(int64(linked.Prev)))
		linked.Source, linked.Time = source, time.Now().Round(0).UTC()
		stored, _, err := log.Append(ctx, linked)
		var conflict *eventlog.Conflict
		if !errors.As(err, &conflict) { // else somebody has said more
			return stored.Seq, err
		}
	}
}

// silentFor is how long nothing must have come onto the log of a run until the
// plane may have been away.
const silentFor = time.Minute

// silence is a time in which nothing came onto the log of a run, and the event at its end.
type silence struct {
	events.Span
	end uint64
}

// listen finds the times in which nothing came onto the log. Who decides has stated
// those that it had folded.
func (s *session) listen(e events.Event) {
	if e.Source == s.source && e.AsOf > 0 {
		s.silent = slices.DeleteFunc(s.silent, func(g silence) bool { return g.end <= e.AsOf })
	}
	if !s.latest.IsZero() && e.Time.Sub(s.latest) >= silentFor {
		s.silent = append(s.silent, silence{events.Span{Since: s.latest, Until: e.Time}, e.Seq})
	}
	if e.Time.After(s.latest) {
		s.latest = e.Time
	}
}

// Timekeeper is a Decider that ends what has had its time.
type Timekeeper interface {
	// Keeps reports whether there is anything whose time counts.
	Keeps(v projection.View) bool
}

// excuse states that the plane was away where nothing came onto the log for some time, and gives
// the last statement's sequence. This process begins to decide: that it, or the log, was stopped
// since somebody last decided, or the run restored, must not count as the time of rollouts. Where
// others worked all that time, rollouts get some more.
func (s *session) excuse(ctx context.Context) (seq uint64, err error) {
	keeper, ok := s.decider.(Timekeeper)
	if !ok || !keeper.Keeps(s.db) {
		return 0, nil
	}
	silent := s.silent
	if now := time.Now(); now.Sub(s.latest) >= silentFor {
		silent = append(silent, silence{Span: events.Span{Since: s.latest, Until: now}})
	}
	// one that has no right to state it says so as one that cannot decide
	ctx, cancel := context.WithTimeout(ctx, waitEvery)
	defer cancel()
	for _, g := range silent {
		g.Until = g.Until.Add(waitFor)
		if seq, err = stateWait(ctx, s.env.Log.Appender, s.run, events.EveryStage, stuckSource+s.source,
			health.LogUnreachable, g.Span); err != nil {
			return seq, err
		}
	}
	return seq, nil
}
