// Package recovery compares what the catalogue, the stream and the archive of a run say of each
// other, and makes a stream again from its archive.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// Restore makes a run's stream again from its archive, each event at its sequence, or gives one
// that was rolled back its end again. The stream is hidden until it is whole, so services may run
// meanwhile. It lists the run, its segments and the version of the run's policy in a catalogue that
// does not know them. An interrupted restoration goes on. It refuses a stream that is as long as
// the archive, and an ErrForked names the first event that differs.
//
// alone, if set, is called before the stream is shown, and returns when nobody decides in the run
// any more: a decider may not have noticed yet that its stream is gone.
func Restore(ctx context.Context, log *eventlog.Log, run string, sealed []events.SegmentSealed,
	alone func(ctx context.Context, run string) error) (count int, err error) {
	if err := eventlog.CheckSegments(run, sealed); err != nil {
		return 0, err
	}
	if len(sealed) == 0 {
		return 0, fmt.Errorf("run %s: nothing of it is archived: %w", run, eventlog.ErrNotFound)
	}
	settings, err := archivedSettings(ctx, log.Store(), run, sealed[0])
	if err != nil {
		return 0, err
	}
	from, err := begin(ctx, log.Restorer, run, settings, sealed)
	if err != nil {
		return 0, err
	}
	if count, err = fill(ctx, log.Restorer, run, settings, from, sealed); err != nil {
		return count, fmt.Errorf("restore run %s: %w", run, err)
	}
	if err := list(ctx, log.Appender, run, sealed); err != nil {
		return count, err
	}
	if alone != nil {
		if err := alone(ctx, run); err != nil {
			return count, fmt.Errorf("restore run %s: %w", run, err)
		}
	}
	return count, log.Restorer.Show(ctx, run)
}

// begin sees to it that there is a hidden stream that holds a beginning of the archive and nothing
// else, and gives its last sequence.
func begin(ctx context.Context, log eventlog.Restorer, run string, settings runfile.Log,
	sealed []events.SegmentSealed) (last uint64, err error) {
	in, hidden, err := log.Look(ctx, run)
	if errors.Is(err, eventlog.ErrNotFound) {
		if err := log.MakeHidden(ctx, run, settings); err != nil {
			return 0, err
		}
		in, hidden, err = log.Look(ctx, run) // somebody else may have made it
	}
	if err != nil {
		return 0, err
	}
	differs, err := log.Differs(ctx, run, sealed)
	if err == nil && differs != "" {
		err = fmt.Errorf("%w, and nothing was restored: %s", eventlog.ErrForked, differs)
	}
	if err != nil {
		return 0, err
	}
	end := sealed[len(sealed)-1].Last
	switch {
	case in.LastSeq > end, !hidden && in.LastSeq == end:
		return 0, fmt.Errorf("run %s has a stream of %d events, and its archive ends at %d: there is nothing to restore",
			run, in.LastSeq, end)
	case hidden:
		return in.LastSeq, nil
	}
	if err := log.Hide(ctx, run); err != nil {
		return 0, err
	}
	now, _, err := log.Look(ctx, run)
	if err == nil && now.LastSeq != in.LastSeq {
		err = fmt.Errorf("run %s went on from sequence %d to %d while it was compared with its archive: %w", run,
			in.LastSeq, now.LastSeq, eventlog.ErrForked)
		err = errors.Join(err, log.Show(context.WithoutCancel(ctx), run))
	}
	return in.LastSeq, err
}

// fill writes what the archive holds behind a sequence.
func fill(ctx context.Context, log eventlog.Restorer, run string, settings runfile.Log, last uint64,
	sealed []events.SegmentSealed) (count int, err error) {
	for i, s := range sealed {
		if s.Last <= last {
			continue
		}
		if settings.Forgets() { // what had left the stream before the segment was made would not fit
			if err := log.PurgeRestored(ctx, run, sealed[:i]); err != nil {
				return count, err
			}
		}
		segment, err := eventlog.ReadSegment(ctx, log.Store(), run, s)
		if err != nil {
			return count, err
		}
		for r, err := range segment.Records() {
			if err != nil {
				return count, err
			}
			if uint64(r.Sequence) <= last {
				continue
			}
			if err := log.Put(ctx, run, r); err != nil {
				return count, fmt.Errorf("sequence %d: %w", r.Sequence, err)
			}
			count++
		}
	}
	return count, nil
}

// archivedSettings are the settings of an archived run's log; the defaults where it does
// not begin with its opening.
func archivedSettings(ctx context.Context, store storage.Store, run string,
	first events.SegmentSealed) (settings runfile.Log, err error) {
	e, err := firstEvent(ctx, store, run, first)
	if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) ||
		err == nil && e.Type != events.RunOpenedType {
		return settings, nil
	}
	if err != nil {
		return settings, err
	}
	opened, err := events.Data[events.RunOpened](e)
	return opened.Config.Log, err
}

func firstEvent(ctx context.Context, store storage.Store, run string,
	s events.SegmentSealed) (e events.Event, err error) {
	segment, err := eventlog.ReadSegment(ctx, store, run, s)
	if err != nil {
		return e, err
	}
	records, err := segment.Part(0)
	if err != nil {
		return e, err
	}
	r := records[0]
	return eventlog.Decode(ctx, store, r.Subject, r.Header, r.Data, uint64(r.Sequence))
}

// list states in the catalogue what it has lost.
func list(ctx context.Context, log eventlog.Appender, run string, sealed []events.SegmentSealed) error {
	for _, t := range []events.Type{events.RunOpenedType, events.RunClosedType} {
		e, err := log.LastOfType(ctx, run, t, run)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue // an open run
		}
		if err == nil {
			err = log.ListRun(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	if err := listWeights(ctx, log, run); err != nil {
		return err
	}
	known, err := log.Segments(ctx, run)
	if err != nil {
		return err
	}
	for _, s := range sealed[min(len(known), len(sealed)):] {
		fact, err := events.New(events.Catalogue, events.SegmentSealedType, run, fmt.Sprint(s.First), s)
		if err != nil {
			return err
		}
		fact.Source = topology.Archiver
		if _, err := log.AppendOnce(ctx, fact, time.Time{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// listWeights lists the last published version of a run's policy.
func listWeights(ctx context.Context, log eventlog.Appender, run string) error {
	cfg, err := log.Config(ctx, run)
	if err != nil {
		return nil // a log that does not begin with its opening has no policy
	}
	published, found, err := log.Published(ctx, run, cfg.Policy)
	if err != nil || !found {
		return err
	}
	return ListWeights(ctx, log, published)
}

// ListWeights states in the catalogue that a version of a policy was published, unless it knows of
// that one or a later one: servers that have it report it.
func ListWeights(ctx context.Context, log eventlog.Appender, published events.WeightsPublished) error {
	known, found, err := log.Published(ctx, events.Catalogue, published.Policy)
	if err != nil || found && known.Version >= published.Version {
		return err
	}
	fact, err := events.New(events.Catalogue, events.WeightsPublishedType, published.Policy,
		events.Ordinal(published.Version), published)
	if err != nil {
		return err
	}
	fact.Source = topology.WeightPublisher
	_, err = log.AppendOnce(ctx, fact, time.Time{}, nil)
	return err
}
