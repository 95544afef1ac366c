package eventlog

import (
	"context"
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// partsAhead is how many parts of segments are decoded while one is read. Each takes some 16 MiB,
// four times that in segments of before they had several parts.
const partsAhead = 2

// reading is a part that is being decoded.
type reading struct {
	records []storage.Record
	err     error
}

// readAhead yields the parts that hold a run's events from a sequence on, in order. It fetches a
// segment while the last parts of the one before it are read.
func (l Reader) readAhead(ctx context.Context, run string, from uint64,
	sealed []events.SegmentSealed) iter.Seq2[[]storage.Record, error] {
	return func(yield func([]storage.Record, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		pending := make(chan chan reading, partsAhead-1)
		go func() {
			defer close(pending)
			l.startReading(ctx, run, from, sealed, pending)
		}()
		for c := range pending {
			if r := <-c; !yield(r.records, r.err) || r.err != nil {
				return
			}
		}
	}
}

// startReading starts to decode part after part, as pending has room for them.
func (l Reader) startReading(ctx context.Context, run string, from uint64, sealed []events.SegmentSealed,
	pending chan<- chan reading) {
	start := func(read func() ([]storage.Record, error)) (ok bool) {
		c := make(chan reading, 1)
		select {
		case pending <- c:
		case <-ctx.Done():
			return false
		}
		go func() {
			records, err := read()
			c <- reading{records, err}
		}()
		return true
	}
	for _, s := range sealed {
		if s.Last < from {
			continue
		}
		segment, err := ReadSegment(ctx, l.store, run, s)
		if err != nil {
			start(func() ([]storage.Record, error) { return nil, err })
			return
		}
		for i := range segment.Parts() {
			if uint64(segment.LastOf(i)) < from {
				continue
			}
			if !start(func() ([]storage.Record, error) { return segment.Part(i) }) {
				return
			}
		}
	}
}
