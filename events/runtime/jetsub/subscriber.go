// Package jetsub is a Watermill subscriber over JetStream pull consumers, as thin as it can be: it pulls a
// message when a slot is free and never earlier, beats while a handler works, and acknowledges afterwards.
package jetsub

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"
)

// Verdict is what a handler that failed wants done with its message.
type Verdict struct {
	// Terminate gives the message up, with the reason in the server's advisory.
	Terminate bool
	Reason    string
	// After is when the message is to come again.
	After time.Duration
}

// Delivery is a message's other side, for handlers that know that it comes from JetStream.
type Delivery struct {
	Msg     jetstream.Msg
	Meta    *jetstream.MsgMetadata
	verdict *Verdict
}

// Nacked sets what a negative acknowledgement means; without it the message comes again after a back-off.
func (d *Delivery) Nacked(v Verdict) { d.verdict = &v }

type deliveryKey struct{}

// DeliveryOf finds the delivery behind a message.
func DeliveryOf(m *message.Message) *Delivery {
	d, _ := m.Context().Value(deliveryKey{}).(*Delivery)
	return d
}

// Config of a subscriber.
type Config struct {
	// Slots is how many messages of one subscription are in work at once.
	Slots int
	// AckWait is the consumers' own: a working handler beats three times within it.
	AckWait time.Duration
	// HandOver is how long messages rest that a stopping subscriber gives back: longer than its last pull lives,
	// so that they do not come to it again.
	HandOver time.Duration
}

// Subscriber hands messages of durable consumers to Watermill. Topics are names that Consumers resolves.
type Subscriber struct {
	cfg       Config
	consumers func(ctx context.Context, topic string) (jetstream.Consumer, error)
	closing   chan struct{}
	closeOnce sync.Once
	wg        sync.WaitGroup
}

var _ message.Subscriber = (*Subscriber)(nil)

// New makes a subscriber; consumers finds or makes the consumer of a topic.
func New(cfg Config, consumers func(ctx context.Context, topic string) (jetstream.Consumer, error)) *Subscriber {
	return &Subscriber{cfg: cfg, consumers: consumers, closing: make(chan struct{})}
}

// ErrClosed: the subscriber was closed.
var ErrClosed = errors.New("subscriber is closed")

// Subscribe begins to pull. The channel closes when the context ends or the subscriber is closed, after the
// messages in work are settled.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	select {
	case <-s.closing:
		return nil, ErrClosed
	default:
	}
	consumer, err := s.consumers(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	pulling, stop := context.WithCancel(ctx)
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer close(out)
		defer stop()
		var slots sync.WaitGroup
		for range s.cfg.Slots {
			slots.Go(func() { s.slot(pulling, ctx, consumer, out) })
		}
		select {
		case <-s.closing:
		case <-ctx.Done():
		}
		stop()
		slots.Wait()
	}()
	return out, nil
}

// Close stops all subscriptions and waits for the messages in work.
func (s *Subscriber) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	s.wg.Wait()
	return nil
}

// pullAgainAfter is the rest after a pull that failed, for a server that is away.
const pullAgainAfter = 500 * time.Millisecond

// slot works on one message after the other until pulling ends.
func (s *Subscriber) slot(pulling, working context.Context, consumer jetstream.Consumer, out chan<- *message.Message) {
	for pulling.Err() == nil {
		it, err := consumer.Messages(jetstream.PullMaxMessages(1))
		if err == nil {
			err = s.iterate(pulling, working, it, out)
		}
		if err != nil {
			rest(pulling, pullAgainAfter)
		}
	}
}

func (s *Subscriber) iterate(pulling, working context.Context, it jetstream.MessagesContext, out chan<- *message.Message) error {
	defer it.Stop()
	defer context.AfterFunc(pulling, it.Stop)()
	for {
		msg, err := it.Next()
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if pulling.Err() != nil {
			return msg.NakWithDelay(s.cfg.HandOver)
		}
		s.handle(pulling, working, msg, meta, out)
	}
}

// handle gives a message to Watermill and settles it.
func (s *Subscriber) handle(pulling, working context.Context, msg jetstream.Msg, meta *jetstream.MsgMetadata, out chan<- *message.Message) {
	d := &Delivery{Msg: msg, Meta: meta}
	ctx, cancel := context.WithCancel(context.WithValue(working, deliveryKey{}, d))
	defer cancel()
	m := message.NewMessage(strconv.FormatUint(meta.Sequence.Stream, 10), msg.Data())
	m.SetContext(ctx)
	for name, values := range msg.Headers() {
		if len(values) == 1 {
			m.Metadata[name] = values[0]
		}
	}
	beat := time.NewTicker(s.cfg.AckWait / 3)
	defer beat.Stop()
	handOut := out
	for {
		select {
		case handOut <- m:
			handOut = nil
		case <-m.Acked():
			s.ack(msg)
			return
		case <-m.Nacked():
			s.nack(d)
			return
		case <-beat.C:
			_ = msg.InProgress() // a lost beat is followed by another one
		case <-pulling.Done():
			if handOut != nil { // nobody works on it yet
				_ = msg.NakWithDelay(s.cfg.HandOver)
				return
			}
			pulling = context.Background() // it is in work: let it finish
		case <-working.Done():
			_ = msg.NakWithDelay(s.cfg.HandOver)
			return
		}
	}
}

// ackTimeout bounds a confirmed acknowledgement. One that is lost costs a delivery that finds nothing to do.
const ackTimeout = 5 * time.Second

func (s *Subscriber) ack(msg jetstream.Msg) {
	ctx, cancel := context.WithTimeout(context.Background(), ackTimeout)
	defer cancel()
	_ = msg.DoubleAck(ctx)
}

func (s *Subscriber) nack(d *Delivery) {
	v := d.verdict
	if v == nil {
		v = &Verdict{After: Backoff(d.Meta.NumDelivered)}
	}
	if v.Terminate {
		_ = d.Msg.TermWithReason(v.Reason)
		return
	}
	_ = d.Msg.NakWithDelay(v.After)
}

// Backoff is the rest before delivery number delivered+1: from 100 ms doubling up to 30 s.
func Backoff(delivered uint64) time.Duration {
	return min(30*time.Second, 100*time.Millisecond<<min(max(delivered, 1)-1, 10))
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
