package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Verify reads a run's segments and compares them with each other and, where it is there, with the
// run's stream. Findings say what is broken; the error is a store or a server that cannot be asked.
func (l Archive) Verify(ctx context.Context, run string, sealed []events.SegmentSealed) (findings []string, err error) {
	if err := CheckSegments(run, sealed); err != nil {
		findings = append(findings, err.Error())
	}
	in, _, err := l.Look(ctx, run)
	live := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return findings, err
	}
	for _, s := range sealed {
		differs, err := l.verifySegment(ctx, run, s, in, live)
		if wrong(err) {
			differs, err = err.Error(), nil
		}
		if err != nil {
			return findings, err
		}
		if differs != "" {
			findings = append(findings, differs)
		}
	}
	if end := through(sealed); live && in.LastSeq < end {
		findings = append(findings, fmt.Sprintf("run %s: the archive goes on to %d, the stream only to %d", run, end,
			in.LastSeq))
	}
	return findings, nil
}

// Differs names the first event that a run's stream, which may be hidden, and its archive hold
// differently, as far as both go; "" where there is none.
func (l Archive) Differs(ctx context.Context, run string, sealed []events.SegmentSealed) (differs string, err error) {
	in, _, err := l.Look(ctx, run)
	for _, s := range sealed {
		if err != nil || differs != "" || s.First > in.LastSeq {
			break
		}
		differs, err = l.verifySegment(ctx, run, s, in, true)
	}
	return differs, err
}

// verifySegment reads a whole segment, and names the first event that a
// live stream has differently.
func (l Reader) verifySegment(ctx context.Context, run string, s events.SegmentSealed, in Incarnation,
	live bool) (differs string, err error) {
	segment, err := ReadSegment(ctx, l.store, run, s)
	if err != nil {
		return "", err
	}
	for i := range segment.Parts() {
		records, err := segment.Part(i)
		if err == nil && live && differs == "" {
			differs, err = l.compare(ctx, run, in, records)
		}
		if err != nil {
			return "", err
		}
	}
	return differs, nil
}

// wrong says that an object is not what it should be, as opposed to a store that fails.
func wrong(err error) bool {
	return errors.Is(err, ErrBroken) || storage.IsUnusable(err)
}

// compare names the first event of a part that the stream has differently. Only events of rollouts
// leave the stream of a run.
func (l Reader) compare(ctx context.Context, run string, in Incarnation,
	records []storage.Record) (differs string, err error) {
	records = slices.DeleteFunc(slices.Clone(records),
		func(r storage.Record) bool { return uint64(r.Sequence) > in.LastSeq })
	if len(records) == 0 {
		return "", nil
	}
	first, last := uint64(records[0].Sequence), uint64(records[len(records)-1].Sequence)
	at := 0
	r := &cursor{log: l, run: run, created: in.Created, next: first, until: last, restores: true,
		raw: func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			live := record(m, meta)
			for at < len(records) && records[at].Sequence < live.Sequence {
				if differs = mayBeGone(run, records[at]); differs != "" {
					return errStop
				}
				at++
			}
			if at >= len(records) {
				return errStop
			}
			kept := records[at]
			at++
			if live.Sequence != kept.Sequence || live.Subject != kept.Subject || !bytes.Equal(live.Data, kept.Data) ||
				!maps.EqualFunc(live.Header, kept.Header, slices.Equal[[]string]) {
				differs = fmt.Sprintf(
					"run %s: sequence %d: the archive holds %s, the stream %s, and they are not the same",
					run, live.Sequence, kept.Subject, live.Subject)
				return errStop
			}
			return nil
		}}
	if err := r.read(ctx); err != nil && !errors.Is(err, errStop) {
		return "", err
	}
	for ; differs == "" && at < len(records); at++ {
		differs = mayBeGone(run, records[at])
	}
	return differs, nil
}

// mayBeGone is a finding where an event that the stream has not is none that leaves it.
func mayBeGone(run string, r storage.Record) string {
	if leaves(run, events.Type(r.Type)) {
		return ""
	}
	return fmt.Sprintf("run %s: sequence %d: the archive holds %s, and the stream has lost it", run, r.Sequence,
		r.Subject)
}
