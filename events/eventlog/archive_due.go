package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// atRestAfter is how long nothing must happen in a closed run before its log is complete.
const atRestAfter = 35 * time.Second

// AtRest says how long to wait until a closed run may have come to rest, 0 when it has.
func (l Archive) AtRest(ctx context.Context, run string) (wait time.Duration, err error) {
	info, err := l.info(ctx, run)
	if err != nil {
		return 0, err
	}
	return max(0, atRestAfter-time.Since(info.State.LastTime)), nil
}

// Archived is how far a run is archived.
type Archived struct {
	// Through is the last archived sequence, 0 where there is none, and Last
	// the last one of the stream.
	Through, Last uint64
	// At is when the last segment was stated; before the first one, when the run's stream was made.
	At time.Time
}

// Archived reads how far a run that has a stream is archived.
func (l Reader) Archived(ctx context.Context, run string) (Archived, error) {
	in, err := l.Incarnation(ctx, run)
	if err != nil {
		return Archived{}, err
	}
	a := Archived{Last: in.LastSeq, At: in.Created}
	last, err := l.Last(ctx, events.Catalogue, events.SegmentSealedType.Kind(), run)
	if errors.Is(err, ErrNotFound) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	sealed, err := events.Data[events.SegmentSealed](last)
	a.Through, a.At = sealed.Last, last.Time
	return a, err
}
