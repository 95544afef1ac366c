package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// A segment is cut when it takes segmentBytes in the store, or has segmentParts: events of text
// shrink to a twentieth, and what is not sealed has to be read again.
const (
	segmentBytes = 16 << 20
	segmentParts = 32
)

// ErrBroken means that an archive does not hold together.
var ErrBroken = errors.New("archive is broken")

// ErrForgotten is the ErrNotFound of a run whose archive retention has given up.
var ErrForgotten = fmt.Errorf("retention has deleted its archive: %w", ErrNotFound)

// ReadSegment fetches a segment and checks that it is the one that was sealed.
func ReadSegment(ctx context.Context, store storage.Store, run string,
	s events.SegmentSealed) (*storage.Segment, error) {
	data, err := storage.GetBlob(ctx, store, s.Segment)
	if err != nil {
		return nil, fmt.Errorf("segment %d to %d of run %s: %w", s.First, s.Last, run, err)
	}
	segment, err := storage.OpenSegment(data)
	if err != nil {
		return nil, fmt.Errorf("segment %d to %d of run %s: %w", s.First, s.Last, run, err)
	}
	if segment.Run != run || segment.First != int64(s.First) || segment.Last != int64(s.Last) ||
		segment.Previous != s.Previous {
		return nil, fmt.Errorf("segment %d to %d of run %s: %w: the file holds %d to %d of run %s behind %.16q",
			s.First, s.Last, run, ErrBroken, segment.First, segment.Last, segment.Run, segment.Previous)
	}
	return segment, nil
}

// CheckSegments checks that segments follow each other without gaps, each naming the one before it.
func CheckSegments(run string, sealed []events.SegmentSealed) error {
	next, previous := uint64(1), ""
	for _, s := range sealed {
		if s.First != next || s.Last < s.First || s.Previous != previous {
			return fmt.Errorf("run %s: %w: a segment of %d to %d behind %.16q where %d and %.16q should come", run,
				ErrBroken, s.First, s.Last, s.Previous, next, previous)
		}
		next, previous = s.Last+1, s.Segment.SHA256
	}
	return nil
}

// archived reads an archived run as All reads a stream.
func (l Reader) archived(ctx context.Context, run string, from uint64, yield func(events.Event, error) bool) {
	sealed, err := l.Segments(ctx, run)
	if err == nil && len(sealed) == 0 {
		err = fmt.Errorf("run %s: %w", run, errNoRun)
	}
	if err == nil {
		err = CheckSegments(run, sealed)
	}
	if err != nil {
		yield(events.Event{}, err)
		return
	}
	l.readSegments(ctx, run, from, sealed, yield)
}

// readSegments reads the events of segments, from a sequence on.
func (l Reader) readSegments(ctx context.Context, run string, from uint64, sealed []events.SegmentSealed,
	yield func(events.Event, error) bool) {
	for records, err := range l.readAhead(ctx, run, from, sealed) {
		if err != nil {
			yield(events.Event{}, err)
			return
		}
		for _, r := range records {
			if uint64(r.Sequence) < from {
				continue
			}
			e, err := Decode(ctx, l.store, r.Subject, r.Header, r.Data, uint64(r.Sequence))
			if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) {
				e, err = events.Event{Run: run, Type: Unreadable, Seq: uint64(r.Sequence), Data: r.Data}, nil
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Seal archives what a run's stream holds behind its last segment, in whole segments, and in a last
// smaller one if all is set. It gives the segments that it made. Two that seal at once make the
// same first segment, and one of them states it.
func (l Appender) Seal(ctx context.Context, run string, all bool) (made []events.SegmentSealed, err error) {
	through := uint64(0)
	if all {
		in, err := l.Incarnation(ctx, run)
		if err != nil {
			return nil, err
		}
		through = in.LastSeq // not what comes meanwhile: a busy run has always more
	}
	for {
		fact, err := Archive(l).NextSegment(ctx, run, through)
		if err != nil || fact == nil {
			return made, err
		}
		stored, _, err := l.Append(ctx, *fact)
		if err != nil {
			return made, fmt.Errorf("seal run %s: %w", run, err)
		}
		// Who was faster may have cut the segment elsewhere: its cut counts.
		segment, err := events.Data[events.SegmentSealed](stored)
		if err != nil {
			return made, err
		}
		made = append(made, segment)
	}
}

// errCut ends the reading of a segment that is full.
var errCut = errors.New("the segment is full")

// NextSegment stores the segment of a run that follows the last sealed one, and makes the event
// that states it; nil when there is nothing to seal. It appends nothing. A segment that is not full
// is made only where the archive ends before through.
//
// One that is stored and never stated, as by a process that dies between the two, is an object that
// nothing refers to: the next one begins at the same sequence, and follows the same segment.
func (l Archive) NextSegment(ctx context.Context, run string, through uint64) (*events.Event, error) {
	fact, err := events.New(events.Catalogue, events.SegmentSealedType, run, "", nil)
	if err != nil {
		return nil, err
	}
	fact, link, err := l.BehindLast(ctx, fact)
	if err != nil {
		return nil, err
	}
	var last events.SegmentSealed
	if link != nil {
		if last, err = events.Data[events.SegmentSealed](*link); err != nil {
			return nil, err
		}
	}
	in, err := l.Incarnation(ctx, run)
	if err == nil && link != nil && link.Type == events.SegmentSealedType {
		err = l.joins(ctx, run, in, last)
	}
	if err != nil {
		return nil, err
	}
	next := last.Last + 1
	all := last.Last < through
	if in.LastSeq < next || !all && !l.fillsSegment(ctx, run, in.LastSeq+1-next, last) {
		return nil, nil
	}
	segment, full := storage.NewSegmentWriter(run, last.Segment.SHA256), false
	r := &cursor{log: l.Reader, run: run, created: in.Created, next: next, until: in.LastSeq,
		raw: func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if err := segment.Add(record(m, meta)); err != nil {
				return err
			}
			if full = segment.Stored() >= segmentBytes || segment.Parts() >= segmentParts; full {
				return errCut
			}
			return nil
		}}
	if err := r.read(ctx); err != nil && !errors.Is(err, errCut) {
		return nil, fmt.Errorf("seal run %s: %w", run, err)
	}
	if segment.Len() == 0 || !full && !all {
		return nil, nil
	}
	// After a power cut the stream must not end before its archive: other events
	// would take the sequences.
	if err := l.persistStream(events.RunStream(run)); err != nil {
		return nil, fmt.Errorf("seal run %s: %w", run, err)
	}
	sealed, err := l.putSegment(ctx, run, next, last.Segment.SHA256, segment)
	if err != nil {
		return nil, fmt.Errorf("seal run %s: %w", run, err)
	}
	l.archives.join(run, in, sealed)
	stated, err := events.New(events.Catalogue, events.SegmentSealedType, run, fmt.Sprint(next), sealed)
	stated.Source, stated.Prev = topology.Archiver, fact.Prev
	return &stated, err
}

// ErrForked means that a run's stream and its archive hold different events at one sequence.
var ErrForked = errors.New("the stream and its archive are a fork")

// joins checks that a stream holds what the last part of its last segment holds: nothing is sealed
// behind an archive that is another one's. It reads the segment once.
func (l Archive) joins(ctx context.Context, run string, in Incarnation, last events.SegmentSealed) error {
	if in.LastSeq < last.Last {
		return fmt.Errorf("run %s: %w: it ends at %d, and the archive at %d", run, ErrBehind, in.LastSeq, last.Last)
	}
	if l.archives.isJoined(run, in, last) {
		return nil
	}
	segment, err := ReadSegment(ctx, l.store, run, last)
	if err != nil {
		return err
	}
	records, err := segment.Part(segment.Parts() - 1)
	if err != nil {
		return err
	}
	differs, err := l.compare(ctx, run, in, records)
	if err == nil && differs != "" {
		err = fmt.Errorf("%w: %s", ErrForked, differs)
	}
	if err == nil {
		l.archives.join(run, in, last)
	}
	return err
}

// fillsSegment estimates whether the last n events of a run fill a segment: as large as those of
// its last segment were in the store, or so many that their size there does not matter.
func (l Archive) fillsSegment(ctx context.Context, run string, n uint64, last events.SegmentSealed) bool {
	if last.Last > 0 && float64(n)*float64(last.Segment.Size)/float64(last.Last+1-last.First) >= 1.25*segmentBytes {
		return true
	}
	info, err := l.info(ctx, run)
	return err == nil && info.State.Msgs > 0 &&
		float64(info.State.Bytes)/float64(info.State.Msgs)*float64(n) >= segmentParts*storage.SegmentPart
}

func record(m jetstream.Msg, meta *jetstream.MsgMetadata) storage.Record {
	r := storage.Record{
		Sequence: int64(meta.Sequence.Stream), Time: meta.Timestamp.UTC(), Subject: m.Subject(),
		Header: map[string][]string{}, Data: slices.Clone(m.Data()),
	}
	for name, values := range m.Headers() {
		if !strings.HasPrefix(name, "Nats-") { // the conditions of its append are of no more use
			r.Header[name] = values
		}
	}
	if e, err := events.Parse(m.Subject(), m.Headers(), m.Data()); err == nil {
		r.Type, r.ID = string(e.Type), e.ID
	}
	return r
}

// putSegment stores a segment that begins with a sequence.
func (l Archive) putSegment(ctx context.Context, run string, first uint64, previous string,
	segment *storage.SegmentWriter) (events.SegmentSealed, error) {
	data, err := segment.Finish()
	if err != nil {
		return events.SegmentSealed{}, err
	}
	last := first + uint64(segment.Len()) - 1
	ref, err := storage.PutNamed(ctx, l.store, fmt.Sprintf("runs/%s/log/%s-%s", run, events.StepKey(int64(first)),
		events.StepKey(int64(last))), ".arrow", data)
	return events.SegmentSealed{First: first, Last: last, Segment: ref, Previous: previous}, err
}
