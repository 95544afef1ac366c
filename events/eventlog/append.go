package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// JetStream error codes of a conditional append.
const (
	codeWrongSequence jetstream.ErrorCode = 10071 // the verdict: another link is there
	codeInFlight      jetstream.ErrorCode = 10164 // another append of this chain is under way: ask again
	codeTooManyReqs   jetstream.ErrorCode = 10167 // the stream's inbound queue is full: ask again
)

// ErrStreamFull: the run's stream has reached its size limit. Nothing was written.
var ErrStreamFull = errors.New("stream is full")

// Conflict says that another event took the link's place. Winner is the event that stands there.
type Conflict struct {
	Wanted string
	Winner events.Event
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("append %s: %s took its place at sequence %d", c.Wanted, c.Winner.ID, c.Winner.Seq)
}

// Append puts the event behind the link e.Prev of its chain (0: as the first link).
//
// When another writer was faster with the same event (same ID), its event is returned with adopted set: the
// log's content counts, not the caller's. When a different event stands there, the error is a *Conflict. An
// append whose outcome is unknown is resolved by reading the chain, so Append may be repeated at will.
func (l *Log) Append(ctx context.Context, e events.Event) (stored events.Event, adopted bool, err error) {
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	msg, err := l.encode(ctx, e)
	if err != nil {
		return e, false, err
	}
	for try := 0; ; try++ {
		seq, err := l.publish(ctx, msg, e)
		if err == nil {
			e.Seq = seq
			return e, false, nil
		}
		switch code := apiCode(err); {
		case code == codeWrongSequence || unknownOutcome(err):
			winner, found, readErr := l.after(ctx, e)
			if readErr != nil && ctx.Err() == nil && unknownOutcome(readErr) {
				break // the server is away: ask again
			}
			if readErr != nil {
				return e, false, readErr
			}
			if found && winner.ID == e.ID {
				return winner, true, nil
			}
			if found {
				return e, false, &Conflict{Wanted: e.ID, Winner: winner}
			}
			// Nothing stands there yet: the append never arrived, or is still on its way. The expected
			// sequence makes a repetition safe in both cases.
		case code == codeInFlight || code == codeTooManyReqs:
		case streamFull(err):
			return e, false, fmt.Errorf("append %s: %w", e.ID, ErrStreamFull)
		default:
			return e, false, fmt.Errorf("append %s: %w", e.ID, err)
		}
		if err := pause(ctx, try); err != nil {
			return e, false, fmt.Errorf("append %s: %w", e.ID, err)
		}
	}
}

// AppendLast puts the event behind whatever link is the last one. check may refuse that last link (nil: there
// is none yet); it is asked again each time another writer was faster.
func (l *Log) AppendLast(ctx context.Context, e events.Event, check func(last *events.Event) error) (events.Event, bool, error) {
	for {
		last, err := l.Last(ctx, e.Run, e.Type.Kind(), e.Entity)
		switch {
		case errors.Is(err, ErrNotFound):
			e.Prev, err = 0, check(nil)
		case err != nil:
			return e, false, err
		case last.ID == e.ID:
			return last, true, nil
		default:
			e.Prev, err = last.Seq, check(&last)
		}
		if err != nil {
			return e, false, err
		}
		stored, adopted, err := l.Append(ctx, e)
		var conflict *Conflict
		if !errors.As(err, &conflict) {
			return stored, adopted, err
		}
	}
}

func (l *Log) publish(ctx context.Context, msg *nats.Msg, e events.Event) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// No message id: the answer to a duplicate would hide that another content is on the log.
	ack, err := l.js.PublishMsg(ctx, msg,
		jetstream.WithExpectStream(events.RunStream(e.Run)),
		jetstream.WithExpectLastSequenceForSubject(e.Prev, e.Chain()),
		jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// after finds the link that stands directly behind e.Prev.
func (l *Log) after(ctx context.Context, e events.Event) (events.Event, bool, error) {
	link, err := l.Last(ctx, e.Run, e.Type.Kind(), e.Entity)
	if errors.Is(err, ErrNotFound) {
		return link, false, nil
	}
	for err == nil && link.Seq > e.Prev && link.Prev != e.Prev {
		link, err = l.Event(ctx, e.Run, link.Prev)
	}
	return link, err == nil && link.Seq > e.Prev, err
}

func apiCode(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// unknownOutcome reports whether the request may or may not have been carried out.
func unknownOutcome(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrReconnectBufExceeded)
}

func streamFull(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == 503 && api.ErrorCode == 10077
}

// pause waits before the next try: a few microseconds at first, at most a quarter of a second, with jitter so
// that racing writers part.
func pause(ctx context.Context, try int) error {
	d := min(250*time.Millisecond, 100*time.Microsecond<<min(try, 12))
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
