package jetpubsub_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runtime/jetpubsub"
)

// Watermill's own suite for publishers and subscribers. Its topics are runs here and its messages events, each
// of an entity of its own.
func TestConformance(t *testing.T) {
	bench := newBench(t)
	features := tests.Features{
		ConsumerGroups: true, // a durable consumer each
		Persistent:     true,
		// It means subscribers without a group, which see everything. Ours always belong to a durable consumer.
		NewSubscriberReceivesOldMessages: false,
		// At least once: what a handler did twice, the chain of the entity refuses.
		ExactlyOnceDelivery: false,
		// Messages of one subscription are in work side by side. Where order matters a service folds the log.
		GuaranteedOrder:                     false,
		GuaranteedOrderWithSingleSubscriber: false,
		// The server is in this process and cannot be restarted by a command; runtime's tests cut the line to it.
		RestartServiceCommand: nil,
		// The suite's long form repeats the same steps 50 times as often, on two cores for minutes.
		ForceShort: true,
	}
	tests.TestPubSub(t, features,
		func(t *testing.T) (message.Publisher, message.Subscriber) { return bench.pubSub(t, "group") },
		bench.pubSub)
}

type bench struct {
	server *embedded.Server
	log    *eventlog.Log
}

func newBench(t testing.TB) *bench {
	server := natstest.Server(t)
	log, err := eventlog.New(natstest.Connect(t, server), natstest.Store(t))
	if err != nil {
		t.Fatal(err)
	}
	return &bench{server: server, log: log}
}

// pubSub is what the suite tests. Each subscriber has its connection and slots, as if in a process of its own.
func (b *bench) pubSub(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	nc := natstest.Connect(t, b.server)
	sub := subscriber(nc, b.log, 16, group, 5*time.Second)
	return suitePublisher{jetpubsub.Publisher{Log: b.log}}, &suiteSubscriber{Subscriber: sub}
}

// subscriber makes a subscriber whose topics are runs.
func subscriber(nc *nats.Conn, log *eventlog.Log, slots int, durable string, ackWait time.Duration) *jetpubsub.Subscriber {
	return jetpubsub.NewSubscriber(nc, jetpubsub.Config{
		Slots: jetpubsub.NewSlots(slots), Room: slots, Grace: 200 * time.Millisecond, HandOver: 10 * time.Millisecond,
		Gone: func(err error) bool { return errors.Is(err, jetstream.ErrStreamNotFound) },
		Ensure: func(ctx context.Context, run string) (jetpubsub.Consumer, error) {
			c := jetpubsub.Consumer{Stream: events.RunStream(run), Durable: durable, AckWait: ackWait}
			if err := log.EnsureRun(ctx, run); err != nil {
				return c, err
			}
			return c, ensure(ctx, log, c)
		},
	})
}

func ensure(ctx context.Context, log *eventlog.Log, c jetpubsub.Consumer) error {
	_, err := log.JetStream().CreateOrUpdateConsumer(ctx, c.Stream, jetstream.ConsumerConfig{
		Durable: c.Durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait, MaxAckPending: 1000,
	})
	return err
}

// envelope carries the suite's messages, which have an identity, metadata and any bytes, in an event's data.
type envelope struct {
	ID       string            `json:"id"`
	Metadata map[string]string `json:"metadata"`
	Payload  []byte            `json:"payload"`
}

type suitePublisher struct{ jetpubsub.Publisher }

func (p suitePublisher) Publish(topic string, messages ...*message.Message) error {
	if err := p.Log.EnsureRun(context.Background(), topic); err != nil {
		return err
	}
	for _, m := range messages {
		e, err := events.New(topic, events.RolloutAnnotatedType, m.UUID, "0", envelope{m.UUID, m.Metadata, m.Payload})
		if err != nil {
			return err
		}
		if err := p.Publisher.Publish(topic, jetpubsub.MessageOf(m.Context(), e)); err != nil {
			return err
		}
	}
	return nil
}

type suiteSubscriber struct {
	*jetpubsub.Subscriber
	unpacking sync.WaitGroup
}

func (s *suiteSubscriber) Close() error {
	err := s.Subscriber.Close()
	s.unpacking.Wait()
	return err
}

func (s *suiteSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	s.unpacking.Go(func() {
		defer close(out)
		for m := range in {
			var e envelope
			if err := json.Unmarshal(m.Payload, &e); err != nil {
				panic(err) // only this test wrote it
			}
			m.UUID, m.Metadata, m.Payload = e.ID, e.Metadata, e.Payload
			select {
			case out <- m:
			case <-m.Context().Done():
			}
		}
	})
	return out, nil
}
