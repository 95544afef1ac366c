// Package jetpubsub is a Watermill subscriber on nats.go's JetStream client.
//
// The subscriber pulls from a durable consumer as many messages as it has slots for and never more,
// tells the server that a handler is still at work, and acknowledges afterwards. Messages of one
// subscription are in work side by side. It promises each message at least once, and no order.
package jetpubsub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/slots"
)

// Config of a subscriber.
type Config struct {
	// Conn is the connection of the consumers.
	Conn *nats.Conn
	// Slots bound the messages in work; they are counted for the tenant.
	Slots slots.Tenant
	// Requests are the turns in which the server is asked for messages, and told that they are
	// handled. The zero value waits for none.
	Requests slots.Tenant
	// Ensure finds or makes a topic's durable consumer. It is called again after pulls that failed;
	// an error for which Gone holds ends the subscription.
	Ensure func(ctx context.Context, topic string) (jetstream.Consumer, error)
	Gone   func(error) bool
	// Stalled is told why a topic gives no messages, and nil when the server
	// answers again. It may be nil.
	Stalled func(error)
	// Grace is how long messages in work may take when the subscription ends.
	Grace time.Duration
	// HandOver is how long messages rest that an ending subscription gives back.
	HandOver time.Duration
}

// Subscriber hands the messages of durable consumers to Watermill.
type Subscriber struct {
	cfg     Config
	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool // no subscription begins any more
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber makes a subscriber.
func NewSubscriber(cfg Config) *Subscriber {
	if cfg.Stalled == nil {
		cfg.Stalled = func(error) {}
	}
	s := &Subscriber{cfg: cfg}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// ErrClosed means that the subscriber was closed.
var ErrClosed = errors.New("subscriber is closed")

// Subscribe begins to pull. When the context ends or the subscriber is closed, no more is pulled,
// messages in work get the grace time, and the channel closes.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	consumer, err := s.cfg.Ensure(ctx, topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	sub := newSubscription(context.WithoutCancel(ctx), s.cfg, topic, consumer)
	pulling, stop := context.WithCancel(ctx)
	unregister := context.AfterFunc(s.closing, stop)
	s.running.Go(func() {
		defer stop()
		defer unregister()
		sub.run(pulling)
	})
	return sub.out, nil
}

// Close ends all subscriptions and waits for them.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.running.Wait()
	return nil
}

// subscription is one topic's.
type subscription struct {
	cfg      Config
	topic    string
	consumer jetstream.Consumer
	// out has space for all messages that can be in work, so that handing out never waits.
	out chan *message.Message

	// The puller's own: its request for slots, nil while no messages are known to
	// wait, and whether pulls fail.
	request *slots.Request
	stalled bool
	parked  atomic.Int64 // messages that wait without a slot

	// working ends with the grace time, and confirming a moment later.
	working     context.Context
	stopWorking context.CancelFunc
	confirming  context.Context
	stopConfirm context.CancelFunc
	settling    sync.WaitGroup
}

func newSubscription(ctx context.Context, cfg Config, topic string, consumer jetstream.Consumer) *subscription {
	s := &subscription{cfg: cfg, topic: topic, consumer: consumer, out: make(chan *message.Message, cfg.Slots.Total())}
	s.working, s.stopWorking = context.WithCancel(ctx)
	s.confirming, s.stopConfirm = context.WithCancel(ctx)
	return s
}

const (
	// ensureAgainAfter is the rest after a pull that failed.
	ensureAgainAfter = 100 * time.Millisecond
	// confirmWithin is how long an ending subscription waits for the confirmations of
	// its last acknowledgements.
	confirmWithin = time.Second
)

// run pulls until the context ends or the consumer is gone for good, and then sees
// to the messages in work.
func (s *subscription) run(ctx context.Context) {
	defer close(s.out)
	defer s.stopConfirm()
	defer s.stopWorking()
	for ctx.Err() == nil {
		err := s.pull(ctx)
		if err != nil || s.stalled {
			s.cfg.Stalled(err)
		}
		s.stalled = err != nil
		if err != nil && !s.ensure(ctx) {
			break
		}
	}
	if s.request != nil {
		s.cfg.Slots.Forget(s.request)
	}
	s.giveBack()
	settled := make(chan struct{})
	go func() {
		s.settling.Wait()
		close(settled)
	}()
	grace := time.AfterFunc(s.cfg.Grace, s.stopWorking)
	defer grace.Stop()
	confirm := time.AfterFunc(s.cfg.Grace+confirmWithin, s.stopConfirm)
	defer confirm.Stop()
	<-settled
}

// ensure looks for the consumer after a pull that failed. It reports whether to go on.
func (s *subscription) ensure(ctx context.Context) bool {
	rest(ctx, ensureAgainAfter)
	consumer, err := s.cfg.Ensure(ctx, s.topic)
	if err != nil {
		return !s.cfg.Gone(err)
	}
	s.consumer = consumer
	return true
}

// accept takes a message over and hands it out: it is in work from here on. A message that arrives
// when the subscription is already ending goes back. pending is how many messages wait behind it.
func (s *subscription) accept(ctx context.Context, m jetstream.Msg) (pending uint64) {
	meta, err := m.Metadata()
	if err != nil {
		s.cfg.Slots.Release() // no message of a consumer
		return 0
	}
	d := &Delivery{Msg: m, MsgMetadata: meta, slot: slot{tenant: s.cfg.Slots, parked: &s.parked}}
	if ctx.Err() != nil {
		_ = m.NakWithDelay(s.cfg.HandOver)
		s.cfg.Slots.Release()
		return 0
	}
	working, cancel := context.WithCancel(s.working)
	msg, ackWait := d.message(working), s.consumer.CachedInfo().Config.AckWait
	s.settling.Go(func() {
		defer cancel()
		s.settle(d, msg, ackWait)
	})
	s.out <- msg
	return d.NumPending
}

// giveBack gives back the messages that were handed out and not picked up yet.
func (s *subscription) giveBack() {
	for {
		select {
		case m := <-s.out:
			DeliveryOf(m).Nacked(Verdict{After: s.cfg.HandOver})
			m.Nack()
		default:
			return
		}
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
