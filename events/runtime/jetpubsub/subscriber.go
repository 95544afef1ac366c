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
	// Party names who the subscription's use of slots is counted for.
	Party string
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
	nc      *nats.Conn
	cfg     Config
	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool // no subscription begins any more
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber makes a subscriber over a connection, which it does not own.
func NewSubscriber(nc *nats.Conn, cfg Config) *Subscriber {
	s := &Subscriber{nc: nc, cfg: cfg}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// ErrClosed: the subscriber was closed.
var ErrClosed = errors.New("subscriber is closed")

// Subscribe begins to pull. When the context ends or the subscriber is closed, no more is pulled, messages in
// work get the grace time, and the channel closes.
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
	sub, err := newSubscription(context.WithoutCancel(ctx), s.nc, s.cfg, topic, consumer)
	if err != nil {
		return nil, err
	}
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
	nc       *nats.Conn
	cfg      Config
	topic    string
	consumer Consumer
	acks     *acks
	slots    party
	// out has room for all messages that can be in work, so that handing out never waits.
	out chan *message.Message

	// working ends when the grace time is over.
	working  context.Context
	stopWork context.CancelFunc
	settling sync.WaitGroup

	mu        sync.Mutex
	delivered map[*Delivery]struct{} // not settled yet
}

func newSubscription(ctx context.Context, nc *nats.Conn, cfg Config, topic string, consumer Consumer) (*subscription, error) {
	acks, err := newAcks(nc)
	if err != nil {
		return nil, err
	}
	s := &subscription{nc: nc, cfg: cfg, topic: topic, consumer: consumer, acks: acks, slots: cfg.Slots.party(cfg.Party), out: make(chan *message.Message, cfg.Room), delivered: map[*Delivery]struct{}{}}
	s.working, s.stopWork = context.WithCancel(ctx)
	s.slots.join()
	return s, nil
}

// run pulls until the context ends or the consumer is gone for good, and sees to what is in work.
func (s *subscription) run(ctx context.Context) {
	defer close(s.out)
	defer s.slots.leave()
	defer s.stopWork()
	beating := make(chan struct{})
	defer close(beating)
	go s.beat(s.consumer.AckWait/3, beating)
	for ctx.Err() == nil && s.pull(ctx) {
	}
	s.takeBack()
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
	s.acks.end(confirmWithin)
}

// Rests before a server that is away, or does not know the consumer, is asked again.
const (
	pullAgainAfter   = 50 * time.Millisecond
	ensureAgainAfter = 250 * time.Millisecond
)

// confirmWithin is what an ending subscription waits for the confirmations of its last acknowledgements.
const confirmWithin = time.Second

// pull pulls until something is wrong and sees to that. It reports whether to go on.
func (s *subscription) pull(ctx context.Context) bool {
	err := newPuller(s.nc, s.consumer, s.slots, s.cfg.Room, func(m *nats.Msg) uint64 { return s.accept(ctx, m) }).run(ctx)
	switch {
	case errors.Is(err, errGone):
		rest(ctx, ensureAgainAfter)
		consumer, err := s.cfg.Ensure(ctx, s.topic)
		if err == nil {
			s.consumer = consumer
		}
		return err == nil || !s.cfg.Gone(err)
	case err != nil:
		s.acks.again(0)
		rest(ctx, pullAgainAfter)
	}
	return true
}

// accept takes a message over and hands it out: it is in work from here on. What arrives when the subscription
// is ending already goes back. It reports how many messages wait behind this one.
func (s *subscription) accept(ctx context.Context, m *nats.Msg) (pending uint64) {
	d, err := newDelivery(m)
	if err != nil {
		s.slots.release() // no message of a consumer
		return 0
	}
	if ctx.Err() != nil {
		_ = s.nc.Publish(d.reply, nak(s.cfg.HandOver))
		s.slots.release()
		return 0
	}
	working, cancel := context.WithCancel(s.working)
	msg := d.message(working, strconv.FormatUint(d.Seq, 10), m.Data)
	s.mu.Lock()
	s.delivered[d] = struct{}{}
	s.mu.Unlock()
	s.settling.Add(1)
	go s.settle(d, msg, cancel)
	s.out <- msg
	return d.Pending
}

// takeBack gives back what was handed out and not picked up yet.
func (s *subscription) takeBack() {
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

// settle waits for what becomes of a message and tells the server. What cannot be told, because the connection
// is lost, the server learns from silence.
func (s *subscription) settle(d *Delivery, m *message.Message, cancel context.CancelFunc) {
	defer s.settling.Done()
	select {
	case <-m.Acked():
	case <-m.Nacked():
	case <-s.working.Done():
		d.Nacked(Verdict{After: s.cfg.HandOver})
		m.Nack() // in vain, when it was acknowledged at the last moment
	}
	body, confirm, well := ackDone, true, true
	select {
	case <-m.Nacked():
		well = false
		body, confirm = d.refusal()
	default:
	}
	s.mu.Lock()
	delete(s.delivered, d)
	s.mu.Unlock()
	if confirm {
		s.acks.send(d.reply, body, func() { s.slots.settled(well) })
	} else {
		_ = s.nc.Publish(d.reply, body)
		s.slots.settled(well)
	}
	cancel()
}

// beat keeps the server from giving messages in work to others, and repeats acknowledgements that were lost.
func (s *subscription) beat(interval time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		for d := range s.delivered {
			_ = s.nc.Publish(d.reply, ackProgress) // a lost beat is followed by another one
		}
		s.mu.Unlock()
		s.acks.again(interval)
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
