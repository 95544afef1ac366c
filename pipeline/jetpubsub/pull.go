package jetpubsub

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/slots"
)

// pull waits until there are messages, leases slots and takes messages into them. A subscription
// that has nothing to do has no slots and asks for none.
func (s *subscription) pull(ctx context.Context) error {
	if s.request == nil {
		s.unpark(ctx)
		if !s.stalled { // a server that was away shows by its answer to a pull that it is back
			if rung, err := s.bell(ctx); err != nil || !rung {
				return err
			}
			rest(ctx, time.Duration(s.cfg.Slots.Load()*float64(spread)))
		}
		s.request = s.cfg.Slots.Ask(1)
	}
	var lease *slots.Lease
	select {
	case lease = <-s.request.Lease():
	case <-ctx.Done():
		return nil
	}
	s.request = nil
	came, more, err := s.take(ctx, lease.N)
	if free := s.unparked(); more > 0 && free > 0 {
		s.request = s.cfg.Slots.Ask(int(min(more, uint64(free))))
	}
	s.cfg.Slots.End(lease, lease.N-came)
	if came == 0 && err == nil {
		rest(ctx, vainRest)
	}
	return err
}

const (
	// answerWithin is how long nats.go waits for the answer to a pull that takes the
	// messages that are there.
	answerWithin = time.Second
	// spread is how long a process leaves the messages that have come to others, if all of its
	// slots are in work: of several the one with the most slots left takes them.
	spread = 5 * time.Millisecond
	// vainRest is the rest after a pull that brought nothing, as another process was faster.
	vainRest = 5 * time.Millisecond
)

var errSilent = errors.New("the server did not answer a pull within 1 s")

// bell waits until there are messages, and takes none: the server answers a pull for one byte as
// soon as there is a message, which is always larger, and leaves it to whoever has a slot. It
// reports false when none came for a while.
func (s *subscription) bell(ctx context.Context) (rung bool, err error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	changed := s.cfg.Conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.cfg.Conn.RemoveStatusListener(changed)
	began := time.Now()
	batch, err := s.consumer.Fetch(1, jetstream.FetchMaxBytes(1), jetstream.FetchContext(waiting))
	if err != nil {
		return false, err
	}
	select {
	case <-batch.Messages(): // closed at the end of the pull
	case <-changed: // the server may have lost the pull with the line
		return true, nil
	}
	if !s.cfg.Conn.IsConnected() { // no server says anything
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return ctx.Err() == nil, nil
	}
	if ctx.Err() != nil {
		return false, nil
	}
	return time.Since(began) < jetstream.DefaultExpires, batch.Error()
}

// take takes up to n of the messages that are there. more is how many wait behind them.
func (s *subscription) take(ctx context.Context, n int) (came int, more uint64, err error) {
	_ = s.cfg.Requests.Do(ctx, func() bool { // or the context ends, and none came
		came, more, err = s.fetch(ctx, n)
		return err == nil
	})
	return came, more, err
}

func (s *subscription) fetch(ctx context.Context, n int) (came int, more uint64, err error) {
	began := time.Now()
	batch, err := s.consumer.FetchNoWait(n)
	if err != nil {
		return 0, 0, err
	}
	for m := range batch.Messages() {
		more = s.accept(ctx, m)
		came++
	}
	if came < n {
		more = 0
		if err = batch.Error(); err == nil && came == 0 && time.Since(began) >= answerWithin {
			err = errSilent
		}
	}
	return came, more, err
}
