package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// Restore makes a run's stream again from its archive, each event at its sequence, and lists run, segments and the version of the run's policy in
// a catalogue that does not know them. A restoration that was interrupted goes on. It refuses a stream that is as long as
// the archive already.
func (l *Log) Restore(ctx context.Context, run string, sealed []events.SegmentSealed) (count int, err error) {
	if err := CheckSegments(run, sealed); err != nil {
		return 0, err
	}
	in, err := l.Incarnation(ctx, run)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return 0, err
	}
	if len(sealed) == 0 || in.LastSeq >= sealed[len(sealed)-1].Last {
		return 0, fmt.Errorf("run %s has a stream of %d events: there is nothing to restore", run, in.LastSeq)
	}
	settings, err := l.archivedSettings(ctx, run, sealed)
	if err != nil {
		return 0, err
	}
	if err := l.EnsureRunFor(ctx, run, settings); err != nil {
		return 0, err
	}
	check := justRead
	if in.LastSeq > 0 { // by somebody before
		check = l.readBack
	}
	for i, s := range sealed {
		if s.Last <= in.LastSeq {
			continue
		}
		if settings.Forgets() { // what had left the stream before the segment was made would not fit
			if _, err := l.purgeEnded(ctx, run, sealed[:i], check); err != nil {
				return count, fmt.Errorf("restore run %s: %w", run, err)
			}
		}
		segment, err := l.ReadSegment(ctx, run, s)
		if err != nil {
			return count, err
		}
		for r, err := range segment.Records() {
			if err != nil {
				return count, err
			}
			if uint64(r.Sequence) <= in.LastSeq {
				continue
			}
			if err := l.put(ctx, run, r); err != nil {
				return count, fmt.Errorf("restore sequence %d of run %s: %w", r.Sequence, run, err)
			}
			count++
		}
	}
	return count, l.list(ctx, run, sealed)
}

// justRead is the check of segments from which a stream was written a moment ago.
func justRead(context.Context, string, []events.SegmentSealed) error { return nil }

// archivedSettings are the settings of an archived run's log; the defaults where it does not begin with its opening.
func (l *Log) archivedSettings(ctx context.Context, run string, sealed []events.SegmentSealed) (settings runfile.Log, err error) {
	l.readSegments(ctx, run, 1, sealed[:1], func(e events.Event, failed error) bool {
		cfg, notOpened := configOf(run, e)
		if err = failed; err == nil && notOpened == nil {
			settings = cfg.Log
		}
		return false
	})
	return settings, err
}

// put publishes a record where it was: behind the one before it, and nowhere else.
func (l *Log) put(ctx context.Context, run string, r storage.Record) error {
	msg := nats.NewMsg(r.Subject)
	msg.Data = r.Data
	for name, values := range r.Header {
		msg.Header[name] = slices.Clone(values)
	}
	ack, err := l.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(events.RunStream(run)), jetstream.WithExpectLastSequence(uint64(r.Sequence)-1))
	if err == nil && ack.Sequence != uint64(r.Sequence) {
		err = fmt.Errorf("%w: it was appended at sequence %d", ErrBroken, ack.Sequence)
	}
	return err
}

// list states in the catalogue what it has lost.
func (l *Log) list(ctx context.Context, run string, sealed []events.SegmentSealed) error {
	for _, t := range []events.Type{events.RunOpenedType, events.RunClosedType} {
		e, err := l.LastOfType(ctx, run, t, run)
		if errors.Is(err, ErrNotFound) {
			continue // an open run
		}
		if err == nil {
			err = l.ListRun(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	if err := l.listWeights(ctx, run); err != nil {
		return err
	}
	known, err := l.Segments(ctx, run)
	if err != nil {
		return err
	}
	for _, s := range sealed[min(len(known), len(sealed)):] {
		fact, err := events.New(events.Catalogue, events.SegmentSealedType, run, fmt.Sprint(s.First), s)
		if err != nil {
			return err
		}
		fact.Source = topology.Archiver
		if _, err := l.AppendOnce(ctx, fact, time.Time{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// listWeights lists the last published version of a run's policy.
func (l *Log) listWeights(ctx context.Context, run string) error {
	cfg, err := l.Config(ctx, run)
	if err != nil {
		return nil // a log that does not begin with its opening has no policy
	}
	published, found, err := l.Published(ctx, run, cfg.Policy)
	if err != nil || !found {
		return err
	}
	return l.ListWeights(ctx, published)
}

// ListWeights states in the catalogue that a version of a policy was published, unless it knows of that one or a later one: servers that have it
// report it.
func (l *Log) ListWeights(ctx context.Context, published events.WeightsPublished) error {
	known, found, err := l.Published(ctx, events.Catalogue, published.Policy)
	if err != nil || found && known.Version >= published.Version {
		return err
	}
	fact, err := events.New(events.Catalogue, events.WeightsPublishedType, published.Policy, events.Ordinal(published.Version), published)
	if err != nil {
		return err
	}
	fact.Source = topology.WeightPublisher
	_, err = l.AppendOnce(ctx, fact, time.Time{}, nil)
	return err
}

// ListRun copies a run's opening or closing to the catalogue, unless that has it.
func (l *Log) ListRun(ctx context.Context, e events.Event) error {
	listed := events.Event{ID: e.ID, Run: events.Catalogue, Type: e.Type, Entity: e.Run, Source: e.Source, Time: e.Time, Data: e.Data}
	_, err := l.AppendOnce(ctx, listed, time.Time{}, nil)
	return err
}
