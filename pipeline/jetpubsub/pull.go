package jetpubsub

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/pipeline/slots"
)

// pull leases slots and takes messages into them.
func (s *subscription) pull(ctx context.Context) error {
	request := s.cfg.Slots.Ask(int(min(max(s.pending, 1), uint64(s.cfg.Slots.Total()))), s.pending > 0)
	var lease *slots.Lease
	select {
	case lease = <-request.Lease():
	case <-ctx.Done():
		s.cfg.Slots.Forget(request)
		return nil
	}
	s.pending = 0
	var came int
	var err error
	if lease.Patience == 0 || s.stalled { // a server that was away shows by its answer that it is back
		came, err = s.take(ctx, lease.N)
	} else {
		came, err = s.wait(ctx, lease)
	}
	s.cfg.Slots.End(lease, lease.N-came)
	s.restInVain(ctx, lease, came)
	return err
}

// answerWithin is how long nats.go waits for the answer to a pull that takes the messages that are there.
const answerWithin = time.Second

var errSilent = errors.New("the server did not answer a pull within 1 s")

// take takes up to n of the messages that are there.
func (s *subscription) take(ctx context.Context, n int) (came int, err error) {
	began := time.Now()
	batch, err := s.consumer.FetchNoWait(n)
	if err != nil {
		return 0, err
	}
	for m := range batch.Messages() {
		s.accept(ctx, m)
		came++
	}
	if came < n {
		s.pending = 0
		if err = batch.Error(); err == nil && came == 0 && time.Since(began) >= answerWithin {
			err = errSilent
		}
	}
	return came, err
}

// idleHeartbeat is how often the server shows that it still knows a pull that waits.
const idleHeartbeat = 5 * time.Second

// wait waits for one message, until the lease's patience ends or its slot is recalled. A message that the server sends in
// that moment is taken over: to drop it would delay it by the consumer's AckWait, and use up one of its deliveries.
func (s *subscription) wait(ctx context.Context, lease *slots.Lease) (came int, err error) {
	arrived, failed := make(chan jetstream.Msg, 1), make(chan error, 1)
	var answered atomic.Bool
	consuming, err := s.consumer.Consume(func(m jetstream.Msg) {
		if answered.Swap(true) { // a pull that was asked again, after a reconnect or of a new leader, may be answered twice
			_ = m.NakWithDelay(s.cfg.HandOver) // nobody has a slot for this one
			return
		}
		arrived <- m
	},
		jetstream.PullMaxMessages(1), jetstream.StopAfter(1), jetstream.PullExpiry(slots.Unhurried), jetstream.PullHeartbeat(idleHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			select {
			case failed <- err:
			default: // one is enough
			}
		}))
	if err != nil {
		return 0, err
	}
	ended := consuming.Closed()
	patience := time.NewTimer(lease.Patience)
	defer patience.Stop()
	select {
	case m := <-arrived:
		s.accept(ctx, m)
		return 1, nil
	case err = <-failed:
	case <-patience.C:
	case <-lease.Recalled:
	case <-ctx.Done():
	}
	consuming.Drain()
	<-ended
	select {
	case m := <-arrived:
		s.accept(ctx, m)
		return 1, err
	default:
		return 0, err
	}
}

// Rests of a subscription that has nothing to do and few slots to look with, doubling.
const (
	vainRest     = 5 * time.Millisecond
	vainRestMost = 500 * time.Millisecond
)

// restInVain rests after a pull that could not wait, because others needed its slot, and brought nothing.
func (s *subscription) restInVain(ctx context.Context, lease *slots.Lease, came int) {
	switch {
	case came > 0 || lease.Patience == slots.Unhurried && !lease.WasRecalled():
		s.rests = 0
	case lease.Patience > 0:
		s.rests = min(max(2*s.rests, vainRest), vainRestMost)
	}
	if s.rests > 0 {
		rest(ctx, s.rests)
	}
}
