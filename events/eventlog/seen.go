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

// seen is how far somebody has seen a run: by what he was given, has read, and has appended.
type seen struct {
	run string
	seq atomic.Uint64
	// shown is up to where the leader of the run's stream has stored it, too.
	shown atomic.Uint64
}

// note raises how far a run was seen.
func (s *seen) note(run string, seq uint64) {
	if s == nil || s.run != run {
		return
	}
	for before := s.seq.Load(); before < seq && !s.seq.CompareAndSwap(before, seq); {
		before = s.seq.Load()
	}
}

// At is a Reader whose reads of a run show what its stream holds up to a sequence, which somebody
// was given, and up to what it has read since. In a cluster a server hands out an event when it has
// stored that itself, and the leader, which is asked for chains, may store it later.
func (l Reader) At(run string, seq uint64) Reader {
	s := &seen{run: run}
	s.seq.Store(seq)
	return Reader{l.core, s}
}

// At is an Appender that reads as Reader.At does, and shows what it has appended.
func (l Appender) At(run string, seq uint64) Appender { return Appender{l.Reader.At(run, seq)} }

// showing reads, and reads again when the leader shows what was seen, where the first answer may be
// older. stale judges that by the sequence of what was read, 0 if it was nothing.
func (l Reader) showing(ctx context.Context, run string, read func() (events.Event, error),
	stale func(read, seen uint64) bool) (events.Event, error) {
	seq := uint64(0)
	if s := l.seen; s != nil && s.run == run {
		seq = s.seq.Load()
	}
	e, err := patient(ctx, read)
	if seq > 0 && (err == nil || errors.Is(err, ErrNotFound)) && stale(e.Seq, seq) &&
		l.seen.shown.Load() < seq && !l.knownSingle(run) {
		if err := l.awaitSeen(ctx, run, seq); err != nil {
			return events.Event{}, err
		}
		e, err = patient(ctx, read)
	}
	if err == nil {
		l.seen.note(run, e.Seq)
	}
	return e, err
}

// knownSingle reports whether one server alone held a run's stream when it was asked last, at most
// a minute ago: it is never behind itself.
func (l *core) knownSingle(run string) bool {
	asked, ok := l.single.Load(run)
	return ok && time.Since(asked.(time.Time)) < time.Minute
}

// awaitSeen waits until the leader has stored what was seen, for readPatience.
func (l Reader) awaitSeen(ctx context.Context, run string, seq uint64) error {
	for began, try := time.Now(), 1; ; try++ {
		info, err := l.info(ctx, run)
		switch {
		case err == nil && (info.State.LastSeq >= seq || info.Config.Replicas <= 1):
			l.seen.shown.Store(info.State.LastSeq)
			return nil
		case err == nil:
			err = fmt.Errorf("the leader of run %s has stored its events up to sequence %d, and %d was seen: %w", run,
				info.State.LastSeq, seq, nats.ErrTimeout)
		case !unknownOutcome(err):
			return err
		}
		if ctx.Err() != nil || time.Since(began) > readPatience || !askAgain.Wait(ctx, try) {
			return err
		}
	}
}

// Replicated reports whether several servers hold a run's stream: then one may be behind another. A
// run without a stream is not.
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
