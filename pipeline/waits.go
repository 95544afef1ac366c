package pipeline

import (
	"context"
	"errors"
	"maps"
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
	// waitFor is until when, from then on, the time of rollouts does not count: longer than until the next statement, and than inputs rest that are tried again.
	waitFor = time.Minute
	// doubtAfter is from when on an input that waits for a store which answers others waits for its object: that is not the plane's time.
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

// waits gives the outage that each of the runs with inputs in work waits for. known is the outage that the process knows of, zero for none: an input that is not parked yet
// may try to get by it.
func (w *inWork) waits(now time.Time, known health.Outage) map[string]health.Outage {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := map[string]health.Outage{}
	for input := range w.inputs {
		found := known
		if input.kind != "" && (input.kind != health.StoreUnreachable || now.Sub(input.since) < doubtAfter) {
			found = health.Outage{Kind: input.kind, Since: input.since}
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
		waits := s.inWork.waits(now, s.env.Health.HoldsUp())
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
				if _, err := stateWait(ctx, s.env.Log, run, s.effect.Stage, s.effect.Name, outage); err != nil && ctx.Err() == nil {
					s.env.Logger.Debug("wait not stated", "service", s.effect.Name, "run", run, "error", err)
				}
			})
		}
		wg.Wait()
	}
}

// stateWait states that a run waits at a stage, unless somebody has just done so, and gives the statement's sequence.
func stateWait(ctx context.Context, log *eventlog.Log, run, stage, source string, outage health.Outage) (seq uint64, err error) {
	now := time.Now().Round(0).UTC()
	e, err := events.New(run, events.StageWaitedType, stage, "0", events.StageWaited{Outage: string(outage.Kind), Since: outage.Since.UTC(), Until: now.Add(waitFor)})
	if err != nil {
		return 0, err
	}
	e, last, err := log.BehindLast(ctx, e)
	if err != nil {
		return 0, err
	}
	if last != nil && now.Sub(last.Time) < waitEvery/2 {
		return last.Seq, nil
	}
	e.ID, e.Source, e.Time = events.ID(run, events.StageWaitedType, stage, events.Ordinal(int64(e.Prev))), source, now
	stored, _, err := log.Append(ctx, e)
	var conflict *eventlog.Conflict
	if errors.As(err, &conflict) {
		return conflict.Winner.Seq, nil
	}
	return stored.Seq, err
}

// silentFor is how old the last event of a run must be until the plane may have been away.
const silentFor = time.Minute

// Timekeeper is a Decider that ends what has had its time.
type Timekeeper interface {
	// Keeps reports whether there is anything whose time counts.
	Keeps(v projection.View) bool
}

// excuse states that the plane was away where the last event of the run is some time ago, and gives the statement's sequence. This process begins to decide: that it, or the log, was stopped
// meanwhile, or the run restored, must not count as the time of rollouts. Where others worked all that time, rollouts get some more.
func (s *session) excuse(ctx context.Context, last uint64) (seq uint64, err error) {
	keeper, ok := s.decider.(Timekeeper)
	if !ok || !keeper.Keeps(s.db) {
		return 0, nil
	}
	e, err := s.env.Log.Event(ctx, s.run, last)
	if err != nil || time.Since(e.Time) < silentFor {
		return 0, unreadable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, waitEvery) // one that has no right to state it says so as one that cannot decide
	defer cancel()
	return stateWait(ctx, s.env.Log, s.run, events.EveryStage, stuckSource+s.source, health.Outage{Kind: health.LogUnreachable, Since: e.Time})
}
