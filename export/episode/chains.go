package episode

import (
	"context"
	"errors"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// The kinds of entity that tell of a rollout.
var (
	RolloutKind  = events.RolloutStartedType.Kind()
	GroupKind    = events.GroupOpenedType.Kind()
	FeedbackKind = events.FeedbackRecordedType.Kind()
	MarkKind     = events.MarkRecordedType.Kind()
	BatchKind    = events.BatchReadyType.Kind()
)

// ChainsOf reads the chains of a rollout, its group, its feedback and its marks, and the batches
// that hold its group, by kind, from the run's stream or, when that is gone, from its archive.
func ChainsOf(ctx context.Context, log eventlog.Reader, run, rollout string) (map[string][]events.Event, error) {
	return chainsOf(ctx, log, run, rollout, nil, true)
}

// chainsOf leaves the batches out where nobody wants them. Of a run with certain feeds it reads no
// further than to the last of their batches.
func chainsOf(ctx context.Context, log eventlog.Reader, run, rollout string, feeds []runfile.Feed,
	batches bool) (map[string][]events.Event, error) {
	group := events.GroupOf(rollout)
	entities := map[string]string{RolloutKind: rollout, GroupKind: group, FeedbackKind: rollout, MarkKind: rollout}
	chains := map[string][]events.Event{}
	if _, err := log.Incarnation(ctx, run); err != nil {
		if !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		for e, err := range log.All(ctx, run, 1) {
			if err != nil {
				return nil, err
			}
			if kind := e.Type.Kind(); entities[kind] == e.Entity && e.Entity != "" || holds(e, group) {
				chains[kind] = append(chains[kind], e)
			}
		}
		return chains, nil
	}
	for kind, entity := range entities {
		last, err := log.Last(ctx, run, kind, entity)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if chains[kind], err = log.History(ctx, run, last.Seq); err != nil {
			return nil, err
		}
	}
	if !batches {
		return chains, nil
	}
	var err error
	chains[BatchKind], err = batchesOf(ctx, log, run, chains[GroupKind], feeds)
	return chains, err
}

// holds reports whether an event is a batch with a group. An event that cannot be read has none;
// its reader reports the error.
func holds(e events.Event, group string) bool {
	if e.Type != events.BatchReadyType {
		return false
	}
	ready, err := events.Data[events.BatchReady](e)
	return err != nil || slices.Contains(ready.Groups, group)
}

// batchesOf reads the batches that hold a group, of which the links are given.
func batchesOf(ctx context.Context, log eventlog.Reader, run string, links []events.Event,
	feeds []runfile.Feed) (found []events.Event, err error) {
	at := slices.IndexFunc(links, func(e events.Event) bool { return e.Type == events.GroupCompletedType })
	if at < 0 {
		return nil, nil
	}
	completed := links[at]
	last, err := log.LastOfType(ctx, run, events.BatchReadyType, "*")
	if errors.Is(err, eventlog.ErrNotFound) || err == nil && last.Seq < completed.Seq {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	errEnd := errors.New("read to the end")
	filter := events.Event{Run: run, Type: events.BatchReadyType, Entity: "*"}.Subject()
	err = log.Follow(ctx, run, completed.Seq, filter, func(e events.Event) error {
		if holds(e, completed.Entity) {
			found = append(found, e)
		}
		if e.Seq >= last.Seq || len(feeds) > 0 && !slices.ContainsFunc(feeds, func(f runfile.Feed) bool {
			return !slices.ContainsFunc(found, func(e events.Event) bool { return e.Entity == f.Name })
		}) {
			return errEnd
		}
		return nil
	})
	if !errors.Is(err, errEnd) {
		return nil, err
	}
	return found, nil
}
