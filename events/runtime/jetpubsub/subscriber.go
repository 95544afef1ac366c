// Package jetpubsub is Watermill's subscriber and publisher over the log.
//
// The subscriber pulls a message of a durable consumer when a slot is free and never earlier, beats while a
// handler works, and acknowledges afterwards. It promises no order between messages in work, and each message
// at least once. The publisher appends events to their chains.
package jetpubsub

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// Consumer is where a topic's messages come from.
type Consumer struct {
	Stream  string
	Durable string
	// AckWait is the consumer's own: messages in work are beaten for three times within it.
	AckWait time.Duration
}

// Config of a subscriber.
type Config struct {
	Slots *Slots
	// Room is the number of slots: the most that one pull can ask for.
	Room int
	// Ensure makes a topic's consumer where it is missing. It is called again when the consumer is gone; an error
	// for which Gone holds ends the subscription.
	Ensure func(ctx context.Context, topic string) (Consumer, error)
	Gone   func(error) bool
	// Grace is what messages in work get to be settled when the subscription ends.
	Grace time.Duration
	// HandOver is how long messages rest that an ending subscription gives back.
	HandOver time.Duration
}

// Subscriber hands the messages of durable consumers to Watermill.
type Subscriber struct {
	nc        *nats.Conn
	cfg       Config
	closing   chan struct{}
	closeOnce sync.Once
	running   sync.WaitGroup
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber makes a subscriber over a connection, which it does not own.
func NewSubscriber(nc *nats.Conn, cfg Config) *Subscriber {
	return &Subscriber{nc: nc, cfg: cfg, closing: make(chan struct{})}
}

// ErrClosed: the subscriber was closed.
var ErrClosed = errors.New("subscriber is closed")

// Subscribe begins to pull. When the context ends or the subscriber is closed, no more is pulled, messages in
// work get the grace time, and the channel closes.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	select {
	case <-s.closing:
		return nil, ErrClosed
	default:
	}
	consumer, err := s.cfg.Ensure(ctx, topic)
	if err != nil {
		return nil, err
	}
	pulling, stop := context.WithCancel(ctx)
	stopClosing := make(chan struct{})
	go func() {
		select {
		case <-s.closing:
			stop()
		case <-stopClosing:
		}
	}()
	sub := newSubscription(s.nc, s.cfg, topic, consumer, context.WithoutCancel(ctx))
	s.running.Go(func() {
		defer close(stopClosing)
		defer stop()
		sub.run(pulling)
	})
	return sub.out, nil
}

// Close ends all subscriptions and waits for them.
func (s *Subscriber) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	s.running.Wait()
	return nil
}

// subscription is one topic's.
type subscription struct {
	nc       *nats.Conn
	cfg      Config
	topic    string
	consumer Consumer
	out      chan *message.Message

	// working ends when the grace time is over.
	working   context.Context
	stopWork  context.CancelFunc
	ending    <-chan struct{} // nothing more is handed out
	pending   uint64          // messages that waited behind the last one
	settling  sync.WaitGroup
	mu        sync.Mutex
	delivered map[*Delivery]struct{} // not settled yet
}

func newSubscription(nc *nats.Conn, cfg Config, topic string, consumer Consumer, ctx context.Context) *subscription {
	s := &subscription{nc: nc, cfg: cfg, topic: topic, consumer: consumer, out: make(chan *message.Message), delivered: map[*Delivery]struct{}{}}
	s.working, s.stopWork = context.WithCancel(ctx)
	return s
}

// run pulls until the context ends or the consumer is gone for good, and sees to what is in work.
func (s *subscription) run(ctx context.Context) {
	defer close(s.out)
	defer s.stopWork()
	s.ending = ctx.Done()
	beating := make(chan struct{})
	defer close(beating)
	go s.beat(beating)
	for ctx.Err() == nil && s.pull(ctx) {
		rest(ctx, ensureAgainAfter)
		consumer, err := s.cfg.Ensure(ctx, s.topic)
		if err == nil {
			s.consumer = consumer
		} else if s.cfg.Gone(err) {
			break
		}
	}
	settled := make(chan struct{})
	go func() {
		s.settling.Wait()
		close(settled)
	}()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	select {
	case <-settled:
	case <-grace.C:
		s.stopWork()
		<-settled
	}
}

// Rests, so that a server that is away or a queue that is empty is not asked all the time.
const (
	ensureAgainAfter = 250 * time.Millisecond
	vainRest         = 5 * time.Millisecond
	vainRestMost     = 500 * time.Millisecond
)

// pull asks for messages until the context ends or the consumer is not there, which it reports.
func (s *subscription) pull(ctx context.Context) (gone bool) {
	p := newPuller(s.nc, s.consumer.Stream, s.consumer.Durable, s.cfg.Room, s.accept)
	defer p.close()
	s.pending = 0
	vain := vainRest
	for {
		hot := s.pending > 0
		l, err := s.cfg.Slots.take(ctx, int(min(max(s.pending, 1), uint64(s.cfg.Room))), hot)
		if err != nil {
			return false
		}
		came, err := p.pull(ctx, l)
		s.cfg.Slots.end(l, l.n-came)
		if came < l.n {
			s.pending = 0
		}
		switch {
		case errors.Is(err, errGone):
			return true
		case err != nil:
			rest(ctx, vain)
			vain = min(2*vain, vainRestMost)
		case came > 0 || hot:
			vain = vainRest
		case l.patience < patience || l.wasRecalled():
			// Others need the slots more: look again later.
			rest(ctx, vain)
			vain = min(2*vain, vainRestMost)
		}
	}
}

// accept takes a message over: it is in work from here on.
func (s *subscription) accept(m *nats.Msg) {
	d, err := newDelivery(m)
	if err != nil {
		s.cfg.Slots.release() // no message of a consumer
		return
	}
	s.pending = d.Pending
	ctx, cancel := context.WithCancel(s.working)
	msg := d.message(ctx, strconv.FormatUint(d.Seq, 10), m.Data)
	s.mu.Lock()
	s.delivered[d] = struct{}{}
	s.mu.Unlock()
	s.settling.Go(func() {
		defer cancel()
		s.settle(d, msg)
		s.mu.Lock()
		delete(s.delivered, d)
		s.mu.Unlock()
		s.cfg.Slots.release()
	})
}

// settle hands a message out and tells the server what became of it. What cannot be told, because the
// connection is lost, the server learns from silence.
func (s *subscription) settle(d *Delivery, m *message.Message) {
	select {
	case s.out <- m:
	case <-s.ending:
		_ = d.nak(s.nc, s.cfg.HandOver)
		return
	}
	select {
	case <-m.Acked():
		_ = d.ack(s.nc)
	case <-m.Nacked():
		_ = d.refuse(s.nc)
	case <-s.working.Done():
		_ = d.nak(s.nc, s.cfg.HandOver)
	}
}

// beat keeps the server from giving messages in work to others.
func (s *subscription) beat(done <-chan struct{}) {
	tick := time.NewTicker(s.consumer.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		for d := range s.delivered {
			_ = d.beat(s.nc) // a lost beat is followed by another one
		}
		s.mu.Unlock()
	}
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
