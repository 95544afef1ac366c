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

// VerifyArchive reads a run's segments and compares them with each other and, where it is there, with the run's stream.
// Findings say what is broken; the error is a store or a server that cannot be asked.
func (l *Log) VerifyArchive(ctx context.Context, run string, sealed []events.SegmentSealed) (findings []string, err error) {
	if err := CheckSegments(run, sealed); err != nil {
		findings = append(findings, err.Error())
	}
	in, err := l.Incarnation(ctx, run)
	live := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return findings, err
	}
	for _, s := range sealed {
		segment, err := l.ReadSegment(ctx, run, s)
		if wrong(err) {
			findings = append(findings, err.Error())
			continue
		}
		if err != nil {
			return findings, err
		}
		if !live {
			continue
		}
		differs, err := l.compareSegment(ctx, in, segment)
		if err != nil {
			return findings, err
		}
		if differs != "" {
			findings = append(findings, differs)
		}
	}
	return findings, nil
}

// wrong says that an object is not what it should be, as opposed to a store that fails.
func wrong(err error) bool {
	for _, known := range []error{ErrBroken, storage.ErrCorrupt, storage.ErrNotFound, storage.ErrTooLarge, storage.ErrKey} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// compareSegment names the first event that the stream has differently.
func (l *Log) compareSegment(ctx context.Context, in Incarnation, s *storage.Segment) (differs string, err error) {
	last := uint64(s.Records[len(s.Records)-1].Sequence)
	if last > in.LastSeq {
		return fmt.Sprintf("run %s: the archive goes on to %d, the stream only to %d", s.Run, last, in.LastSeq), nil
	}
	at := 0
	r := &reader{log: l, run: s.Run, created: in.Created, next: uint64(s.Records[0].Sequence), until: last, raw: func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if at >= len(s.Records) {
			return errStop
		}
		live, kept := record(m, meta), s.Records[at]
		at++
		if live.Sequence != kept.Sequence || live.Subject != kept.Subject || !bytes.Equal(live.Data, kept.Data) || !maps.EqualFunc(live.Header, kept.Header, slices.Equal[[]string]) {
			differs = fmt.Sprintf("run %s: sequence %d: the archive holds %s, the stream %s, and they are not the same", s.Run, live.Sequence, kept.Subject, live.Subject)
			return errStop
		}
		return nil
	}}
	if err := r.read(ctx); err != nil && !errors.Is(err, errStop) {
		return "", err
	}
	return differs, nil
}
