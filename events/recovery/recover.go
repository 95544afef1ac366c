package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// Report is what was lost of a run, what was done about it, and what is left.
type Report struct {
	Run   string    `json:"run"`
	Found []Finding `json:"found"`
	Done  []string  `json:"done"`
	Left  []Finding `json:"left"`
}

// errFull ends the reading of a segment's events.
var errFull = errors.New("the segment has all its events")

// Recover finds what is lost of a run and brings back what can be: segments of which the stream has
// the events, the stream of which the store has the segments, and what the catalogue should list.
// It takes no side where stream and archive differ. alone: see [Restore].
func Recover(ctx context.Context, log *eventlog.Log, run string,
	alone func(ctx context.Context, run string) error) (r Report, err error) {
	r = Report{Run: run, Done: []string{}, Left: []Finding{}}
	if known, err := knows(ctx, log.Reader, run); err != nil || !known {
		return r, errors.Join(err, fmt.Errorf("neither log nor store know a run %q: %w", run, eventlog.ErrNotFound))
	}
	if r.Found, err = Compare(ctx, log.Archive, run, Objects); err != nil || len(r.Found) == 0 {
		return r, err
	}
	has := func(kinds ...Kind) bool {
		return slices.ContainsFunc(r.Found, func(f Finding) bool { return slices.Contains(kinds, f.Kind) })
	}
	if has(SegmentLost) {
		if err := r.segments(ctx, log.Archive); err != nil {
			return r, err
		}
	}
	if has(StreamLost, StreamBehind, Restoring, CatalogueBehind) && !has(Fork) {
		if err := r.stream(ctx, log, alone); err != nil {
			return r, err
		}
	}
	r.Left, err = Compare(ctx, log.Archive, run, Objects)
	return r, err
}

// knows reports whether the log or the store has something of a run.
func knows(ctx context.Context, log eventlog.Reader, run string) (bool, error) {
	if !events.ValidRun(run) {
		return false, nil
	}
	if _, _, err := log.Look(ctx, run); err == nil || !errors.Is(err, eventlog.ErrNotFound) {
		return err == nil, err
	}
	for _, t := range []events.Type{events.RunOpenedType, events.SegmentSealedType} {
		if _, err := log.Last(ctx, events.Catalogue, t.Kind(), run); err == nil ||
			!errors.Is(err, eventlog.ErrNotFound) {
			return err == nil, err
		}
	}
	end, err := storedEnd(ctx, log.Store(), run)
	return end > 0, err
}

// segments puts back those of which the stream has all events.
func (r *Report) segments(ctx context.Context, log eventlog.Archive) error {
	sealed, err := log.Segments(ctx, r.Run)
	if err != nil {
		return err
	}
	for _, s := range sealed {
		err := readSegment(ctx, log.Store(), r.Run, s)
		if wrong(err) {
			err = r.segment(ctx, log, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) segment(ctx context.Context, log eventlog.Archive, s events.SegmentSealed) error {
	w := storage.NewSegmentWriter(r.Run, s.Previous)
	next := s.First
	err := log.Records(ctx, r.Run, s.First, func(record storage.Record) error {
		if next > s.Last || uint64(record.Sequence) != next {
			return errFull
		}
		next++
		return w.Add(record)
	})
	if errors.Is(err, eventlog.ErrNotFound) || err == nil && next <= s.Last ||
		errors.Is(err, errFull) && next <= s.Last {
		return nil // it is left
	}
	if err != nil && !errors.Is(err, errFull) {
		return err
	}
	data, err := w.Finish()
	if err != nil || storage.Digest(data) != s.Segment.SHA256 {
		return err
	}
	if err := log.Store().Put(ctx, s.Segment.Key, data); err != nil {
		return err
	}
	r.Done = append(r.Done, fmt.Sprintf("segment %d to %d was made again from the stream, with the same digest",
		s.First, s.Last))
	return nil
}

// stream restores the stream, or lists what the catalogue does not know.
func (r *Report) stream(ctx context.Context, log *eventlog.Log,
	alone func(ctx context.Context, run string) error) error {
	sealed, err := log.Segments(ctx, r.Run)
	if err != nil {
		return err
	}
	stored, err := Stored(ctx, log.Store(), r.Run)
	if err != nil && !wrong(err) {
		return err
	}
	if len(stored) > len(sealed) && slices.Equal(stored[:len(sealed)], sealed) {
		sealed = stored
	}
	for _, s := range sealed {
		if err := readSegment(ctx, log.Store(), r.Run, s); wrong(err) {
			return nil // it is left
		} else if err != nil {
			return err
		}
	}
	in, hidden, err := log.Look(ctx, r.Run)
	switch {
	case err != nil && !errors.Is(err, eventlog.ErrNotFound):
		return err
	case err == nil && !hidden && in.LastSeq >= lastOf(sealed):
		if err := list(ctx, log.Appender, r.Run, nil); err != nil {
			return err
		}
		r.Done = append(r.Done, "the catalogue lists the run again")
		return nil
	case len(sealed) == 0:
		return nil // nothing is left of it
	}
	n, err := Restore(ctx, log, r.Run, sealed, alone)
	if errors.Is(err, eventlog.ErrForked) {
		return nil // the comparison says where
	}
	if err == nil {
		r.Done = append(r.Done,
			fmt.Sprintf("the stream was restored up to sequence %d: %d events came from the archive",
				lastOf(sealed), n))
	}
	return err
}
