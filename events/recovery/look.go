package recovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// Kind is what is wrong between a run's catalogue, stream, archive and objects.
type Kind string

// The kinds of findings.
const (
	// StreamLost: an open run has no stream, or a run of which nothing is archived.
	StreamLost Kind = "stream_lost"
	// StreamBehind: the stream ends before the archive.
	StreamBehind Kind = "stream_behind"
	// Restoring: the stream is hidden, as a restoration has not ended.
	Restoring Kind = "restoring"
	// Fork: stream and archive hold different events at one sequence.
	Fork Kind = "fork"
	// Gap: the stream lacks events that are not archived.
	Gap Kind = "gap"
	// SegmentLost: the store lacks a segment that the catalogue lists, or holds
	// another one in its place.
	SegmentLost Kind = "segment_lost"
	// CatalogueBehind: the catalogue does not list the run, or segments that end behind its stream.
	CatalogueBehind Kind = "catalogue_behind"
	// ObjectLost: an object that an event names is missing, or another one.
	ObjectLost Kind = "object_lost"
)

// advice is what a person can do about a finding.
var advice = map[Kind]string{
	StreamLost:      "rondo run recover brings back what is archived. Where nothing is, only a copy of the NATS server's disk has the run: else open a new one",
	StreamBehind:    "rondo run recover gives the stream its end again; until then no service appends to it",
	Restoring:       "rondo run recover goes on, unless a restoration is at work now",
	Fork:            "two histories of a run cannot be joined: go on in a new run, or put the NATS server's disk or the store back from a copy",
	Gap:             "put the NATS server's disk back from a copy, as nothing else has these events, or go on in a new run",
	SegmentLost:     "rondo run recover makes it again where the stream has its events; else put the object back from a copy of the store",
	CatalogueBehind: "rondo run recover lists what is missing",
	ObjectLost:      "put the object back from a copy of the store: nothing else has it",
}

// Finding is one thing that is wrong.
type Finding struct {
	Kind  Kind   `json:"kind"`
	Found string `json:"found"`
	Do    string `json:"do"` // what helps
}

func (f Finding) String() string { return string(f.Kind) + ": " + f.Found }

// Depth is how much a comparison reads.
type Depth int

// The depths of a comparison.
const (
	// Ends: the last segment is compared with the stream. Of the others it
	// looks whether they are there.
	Ends Depth = iota
	// Segments: each segment is compared with the stream.
	Segments
	// Objects: and each object that events name is read.
	Objects
)

// Compare compares the catalogue, the stream and the archive of a run. The error is a server or a
// store that cannot be asked.
func Compare(ctx context.Context, log eventlog.Archive, run string, depth Depth) ([]Finding, error) {
	c := comparison{log: log, run: run, depth: depth, findings: []Finding{}}
	err := c.compare(ctx)
	return c.findings, err
}

type comparison struct {
	log      eventlog.Archive
	run      string
	depth    Depth
	in       eventlog.Incarnation
	live     bool
	findings []Finding
}

func (c *comparison) find(kind Kind, format string, args ...any) {
	c.findings = append(c.findings, Finding{kind, fmt.Sprintf(format, args...), advice[kind]})
}

func (c *comparison) compare(ctx context.Context) error {
	in, _, err := c.log.Look(ctx, c.run)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	c.in, c.live = in, err == nil
	sealed, err := c.log.Segments(ctx, c.run)
	if errors.Is(err, eventlog.ErrForgotten) {
		return nil
	}
	if err == nil {
		err = c.state(ctx)
	}
	if err != nil {
		return err
	}
	if broken := eventlog.CheckSegments(c.run, sealed); broken != nil {
		c.find(SegmentLost, "%v", broken)
	}
	for i, s := range sealed {
		if err := c.segment(ctx, s, c.depth >= Segments || i == len(sealed)-1); err != nil {
			return err
		}
	}
	if err := c.unlisted(ctx, lastOf(sealed)); err != nil {
		return err
	}
	if c.live {
		if err := c.gaps(ctx, lastOf(sealed)); err != nil {
			return err
		}
	}
	if c.depth < Objects {
		return nil
	}
	return c.objects(ctx, sealed)
}

// state finds what the state of the run says.
func (c *comparison) state(ctx context.Context) error {
	state, reason, err := c.log.RunState(ctx, c.run)
	switch {
	case err != nil:
		return err
	case state == eventlog.StateLost:
		c.find(StreamLost, "run %s: %s", c.run, reason)
	case state == eventlog.StateBehind:
		c.find(StreamBehind, "run %s: %s", c.run, reason)
	case state == eventlog.StateRestoring:
		c.find(Restoring, "run %s: %s", c.run, reason)
	}
	_, err = c.log.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(), c.run)
	if errors.Is(err, eventlog.ErrNotFound) {
		opened, opening := c.log.Event(ctx, c.run, 1)
		if opening == nil && opened.Type == events.RunOpenedType {
			c.find(CatalogueBehind, "run %s: the catalogue does not list its opening, so no service works for it",
				c.run)
		}
		err = nil
	}
	return err
}

// segment looks at one segment, and compares it with the stream.
func (c *comparison) segment(ctx context.Context, s events.SegmentSealed, reads bool) error {
	if !reads {
		info, err := c.log.Store().Stat(ctx, s.Segment.Key)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			c.find(SegmentLost, "run %s: segment %d to %d is listed, and %s is not in the store", c.run,
				s.First, s.Last, s.Segment.Key)
		case err != nil:
			return err
		case info.Size != s.Segment.Size:
			c.find(SegmentLost, "run %s: segment %d to %d: %s has %d bytes, and %d were sealed", c.run, s.First, s.Last,
				s.Segment.Key, info.Size, s.Segment.Size)
		}
		return nil
	}
	var differs string
	var err error
	if c.live && s.First <= c.in.LastSeq {
		differs, err = c.log.Differs(ctx, c.run, []events.SegmentSealed{s})
	} else {
		err = readSegment(ctx, c.log.Store(), c.run, s)
	}
	switch {
	case wrong(err):
		c.find(SegmentLost, "%v", err)
	case err != nil:
		return err
	case differs != "":
		c.find(Fork, "%s", differs)
	}
	return nil
}

// readSegment reads a whole segment.
func readSegment(ctx context.Context, store storage.Store, run string, s events.SegmentSealed) error {
	segment, err := eventlog.ReadSegment(ctx, store, run, s)
	for i := 0; err == nil && i < segment.Parts(); i++ {
		_, err = segment.Part(i)
	}
	return err
}

// unlisted finds segments of the store that end behind the catalogue's and behind the
// stream: both were rolled back. One that ends on the stream may be of an archiver that
// died before it stated it.
func (c *comparison) unlisted(ctx context.Context, listed uint64) error {
	stored, err := storedEnd(ctx, c.log.Store(), c.run)
	if err != nil || stored <= listed || c.live && stored <= c.in.LastSeq {
		return err
	}
	c.find(CatalogueBehind,
		"run %s: the store has segments up to %d, the catalogue lists them up to %d, and the stream ends at %d", c.run,
		stored, listed, c.in.LastSeq)
	return nil
}

// storedEnd is the last sequence of a run's segments in the store, by their names.
func storedEnd(ctx context.Context, store storage.Store, run string) (end uint64, err error) {
	for info, err := range store.List(ctx, "runs/"+run+"/log/") {
		if err != nil {
			return 0, err
		}
		if names := strings.SplitN(path.Base(info.Key), "-", 3); len(names) == 3 {
			if last, err := strconv.ParseUint(names[1], 10, 64); err == nil {
				end = max(end, last)
			}
		}
	}
	return end, nil
}

// gaps finds events that are missing behind the archive. What is missing before its end is found
// by the comparison with it.
func (c *comparison) gaps(ctx context.Context, archived uint64) error {
	next := archived + 1
	return c.log.Records(ctx, c.run, next, func(r storage.Record) error {
		if seq := uint64(r.Sequence); seq > next {
			c.find(Gap, "run %s: the stream lacks sequences %d to %d, and they are not archived", c.run, next, seq-1)
		}
		next = uint64(r.Sequence) + 1
		return nil
	})
}

func (c *comparison) objects(ctx context.Context, sealed []events.SegmentSealed) error {
	objects, err := VerifyObjects(ctx, c.log.Store(), c.run, sealed, nil)
	for _, text := range objects.Findings {
		c.find(ObjectLost, "%s", text)
	}
	if err != nil || !c.live {
		return err
	}
	objects, err = verifyTail(ctx, c.log, c.run, lastOf(sealed)+1)
	for _, text := range objects.Findings {
		c.find(ObjectLost, "%s", text)
	}
	return err
}

func lastOf(sealed []events.SegmentSealed) uint64 {
	if len(sealed) == 0 {
		return 0
	}
	return sealed[len(sealed)-1].Last
}
