package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// archives is what a Log knows of the runs' archives: where each segment is, and the
// part that was read last.
type archives struct {
	mu    sync.Mutex
	known map[string]archive
	read  map[string]bool // digests of segments that were read back
	ends  map[string]joint

	reading sync.Mutex // one reader at a time, so that only one segment is in memory
	segment *storage.Segment
	file    string // the digest of segment
	part    int
	records []storage.Record
}

// archive are the segments of a run up to a fact of the catalogue.
type archive struct {
	sealed []events.SegmentSealed
	last   events.Event // without its body
}

// through is the last archived sequence, 0 where there is none.
func through(sealed []events.SegmentSealed) uint64 {
	if len(sealed) == 0 {
		return 0
	}
	return sealed[len(sealed)-1].Last
}

func (a *archives) of(run string) archive {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[run]
}

func (a *archives) keep(run string, found archive) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[string]archive{}
	}
	found.last.Data = nil
	a.known[run] = found
}

func (a *archives) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.read, a.ends = nil, nil, nil
}

// joint is the end of an archive that was found on a stream.
type joint struct {
	created time.Time
	digest  string
}

func (a *archives) isJoined(run string, in Incarnation, s events.SegmentSealed) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ends[run] == joint{in.Created, s.Segment.SHA256}
}

func (a *archives) join(run string, in Incarnation, s events.SegmentSealed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ends == nil {
		a.ends = map[string]joint{}
	}
	a.ends[run] = joint{in.Created, s.Segment.SHA256}
}

// isRead reports whether a segment was found to be what the stream holds.
func (a *archives) isRead(s events.SegmentSealed) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.read[s.Segment.SHA256]
}

func (a *archives) wasRead(s events.SegmentSealed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.read == nil {
		a.read = map[string]bool{}
	}
	a.read[s.Segment.SHA256] = true
}

// Segments lists what is archived of a run, from its first event on: ErrForgotten
// where that was given up.
func (l Reader) Segments(ctx context.Context, run string) ([]events.SegmentSealed, error) {
	last, err := l.Last(ctx, events.Catalogue, events.SegmentSealedType.Kind(), run)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if last.Type == events.LogForgottenType {
		return nil, fmt.Errorf("run %s: %w", run, ErrForgotten)
	}
	known := l.archives.of(run)
	if !same(known.last, last) {
		if known, err = l.extendArchive(ctx, known, last); err != nil {
			return nil, err
		}
		l.archives.keep(run, known)
	}
	return slices.Clone(known.sealed), nil
}

// extendArchive reads the facts behind those that are known. Where these are not of the chain, they
// were of a catalogue that is gone.
func (l Reader) extendArchive(ctx context.Context, known archive, last events.Event) (archive, error) {
	links, err := l.walk(ctx, last, known.last.Seq)
	if err != nil {
		return known, err
	}
	if len(links) == 0 || links[0].Prev != known.last.Seq {
		known.sealed = nil
		if links, err = l.walk(ctx, last, 0); err != nil {
			return known, err
		}
	}
	sealed := slices.Clip(known.sealed)
	for _, e := range links {
		s, err := events.Data[events.SegmentSealed](e)
		if err != nil {
			return known, err
		}
		sealed = append(sealed, s)
	}
	return archive{sealed: sealed, last: last}, nil
}

// segmentsTo lists a run's segments, and asks the catalogue only where those that are
// known end before a sequence.
func (l Reader) segmentsTo(ctx context.Context, run string, seq uint64) ([]events.SegmentSealed, error) {
	if known := l.archives.of(run).sealed; through(known) >= seq {
		return known, nil
	}
	return l.Segments(ctx, run)
}

// archivedEvent reads an event from the run's archive: ErrNotFound where that does not hold it.
func (l Reader) archivedEvent(ctx context.Context, run string, seq uint64) (events.Event, error) {
	sealed, err := l.segmentsTo(ctx, run, seq)
	if err != nil {
		return events.Event{}, err
	}
	i, _ := slices.BinarySearchFunc(sealed, seq, func(s events.SegmentSealed, seq uint64) int {
		if s.Last < seq {
			return -1
		}
		return 1
	})
	if i == len(sealed) || sealed[i].First > seq {
		return events.Event{}, ErrNotFound
	}
	r, err := l.archivedRecord(ctx, run, sealed[i], seq)
	if err != nil {
		return events.Event{}, err
	}
	return Decode(ctx, l.store, r.Subject, r.Header, r.Data, seq)
}

// archivedRecord gives a copy of a record, which holds nothing else of its part.
func (l Reader) archivedRecord(ctx context.Context, run string, s events.SegmentSealed,
	seq uint64) (storage.Record, error) {
	a := &l.archives
	a.reading.Lock()
	defer a.reading.Unlock()
	if a.file != s.Segment.SHA256 {
		a.segment, a.records, a.file = nil, nil, ""
		segment, err := ReadSegment(ctx, l.store, run, s)
		if err != nil {
			return storage.Record{}, err
		}
		a.segment, a.file = segment, s.Segment.SHA256
	}
	part := 0
	for uint64(a.segment.LastOf(part)) < seq {
		part++
	}
	if a.records == nil || a.part != part {
		records, err := a.segment.Part(part)
		if err != nil {
			a.records = nil
			return storage.Record{}, err
		}
		a.records, a.part = records, part
	}
	r := a.records[seq-uint64(a.records[0].Sequence)]
	r.Subject, r.Data = strings.Clone(r.Subject), bytes.Clone(r.Data)
	header := make(map[string][]string, len(r.Header))
	for name, values := range r.Header {
		copied := make([]string, len(values))
		for i, value := range values {
			copied[i] = strings.Clone(value)
		}
		header[strings.Clone(name)] = copied
	}
	r.Header = header
	return r, nil
}

// errFilled ends a session behind which the read goes on elsewhere.
var errFilled = errors.New("what had left the stream was read from the archive")

// whole reports whether a reader must see every event of a run.
func (r *cursor) whole() bool { return r.fn != nil && r.filter == "" && r.run != events.Catalogue }

// fill reads what is not on the stream any more from the archive, up to its end, and reports
// whether that was the end of a read that ends. What is not archived either is lost, by an
// operator's hand or with a backup: who cannot do without it has to notice.
func (r *cursor) fill(ctx context.Context) (end bool, err error) {
	sealed, err := r.log.segmentsTo(ctx, r.run, r.next)
	if err == nil && through(sealed) < r.next {
		return false, nil
	}
	if err == nil {
		err = CheckSegments(r.run, sealed)
	}
	if err == nil {
		r.log.readSegments(ctx, r.run, r.next, sealed, func(e events.Event, failed error) bool {
			if err = failed; err != nil {
				return false
			}
			if err = r.fn(e); err != nil {
				err = final{err}
				return false
			}
			r.next = e.Seq + 1
			end = r.until > 0 && r.next > r.until
			return !end
		})
	}
	var f final
	switch {
	case errors.As(err, &f):
		return false, err
	case err != nil && (Lost(err) || errors.Is(err, ErrForgotten)):
		return false, final{fmt.Errorf("follow run %s: %w", r.run, err)}
	case err != nil || end:
		return end, err
	}
	return false, errFilled
}
