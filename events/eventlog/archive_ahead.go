package eventlog

import (
	"context"
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// segmentsAhead is how many segments are fetched and decoded while one is read; each takes some 64 MiB.
const segmentsAhead = 2

// readAhead yields the segments that hold a run's events from a sequence on, in order.
func (l *Log) readAhead(ctx context.Context, run string, from uint64, sealed []events.SegmentSealed) iter.Seq2[*storage.Segment, error] {
	return func(yield func(*storage.Segment, error) bool) {
		type reading struct {
			segment *storage.Segment
			err     error
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var pending []chan reading // in order
		for _, s := range sealed {
			if s.Last < from {
				continue
			}
			c := make(chan reading, 1)
			go func() {
				segment, err := l.ReadSegment(ctx, run, s)
				c <- reading{segment, err}
			}()
			if pending = append(pending, c); len(pending) <= segmentsAhead {
				continue
			}
			r := <-pending[0]
			pending = pending[1:]
			if !yield(r.segment, r.err) || r.err != nil {
				return
			}
		}
		for _, c := range pending {
			if r := <-c; !yield(r.segment, r.err) || r.err != nil {
				return
			}
		}
	}
}
