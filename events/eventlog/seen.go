package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
)

// seen is what somebody has been given of a run.
type seen struct {
	run string
	seq uint64
	// shown: the leader of the run's stream has stored that, too.
	shown atomic.Bool
}

// At is a Reader whose reads of a run show what its stream holds up to a sequence, which somebody was given. In a cluster a server
// hands out an event when it has stored that itself, and the leader, which is asked for chains, may store it later.
func (l Reader) At(run string, seq uint64) Reader {
	return Reader{l.core, &seen{run: run, seq: seq}}
}

// At is an Appender that reads as Reader.At does what stands in its way.
func (l Appender) At(run string, seq uint64) Appender { return Appender{l.Reader.At(run, seq)} }

// showing reads, and reads again when the leader shows what was seen, where the first answer may be older. stale judges that by the sequence
// of what was read, 0 if it was nothing.
func (l Reader) showing(ctx context.Context, run string, read func() (events.Event, error), stale func(read, seen uint64) bool) (events.Event, error) {
	s := l.seen
	asks := s != nil && s.run == run && !s.shown.Load()
	e, err := patient(ctx, read)
	if !asks || err != nil && !errors.Is(err, ErrNotFound) || !stale(e.Seq, s.seq) || l.knownSingle(run) {
		return e, err
	}
	if err := l.awaitSeen(ctx, s); err != nil {
		return events.Event{}, err
	}
	return patient(ctx, read)
}

// knownSingle reports whether one server alone held a run's stream when it was asked last, at most a minute ago: it is never behind itself.
func (l *core) knownSingle(run string) bool {
	asked, ok := l.single.Load(run)
	return ok && time.Since(asked.(time.Time)) < time.Minute
}

// awaitSeen waits until the leader has stored what was seen, for readPatience.
func (l Reader) awaitSeen(ctx context.Context, s *seen) error {
	for began, try := time.Now(), 1; ; try++ {
		info, err := l.info(ctx, s.run)
		switch {
		case err == nil && info.State.LastSeq >= s.seq:
			s.shown.Store(true)
			return nil
		case err == nil:
			err = fmt.Errorf("the leader of run %s has stored its events up to sequence %d, and %d was delivered: %w", s.run, info.State.LastSeq, s.seq, nats.ErrTimeout)
		case !unknownOutcome(err):
			return err
		}
		if ctx.Err() != nil || time.Since(began) > readPatience || !askAgain.Wait(ctx, try) {
			return err
		}
	}
}

// Replicated reports whether several servers hold a run's stream: then one may be behind another. A run without a stream is not.
func (l Streams) Replicated(ctx context.Context, run string) (bool, error) {
	if l.knownSingle(run) {
		return false, nil
	}
	info, err := l.info(ctx, run)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && info.Config.Replicas > 1, err
}
