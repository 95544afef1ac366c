package jetpubsub_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/slots"
)

// Watermill's own suite for publishers and subscribers. Each topic has a stream, and each
// group a durable consumer.
func TestConformance(t *testing.T) {
	bench := newBench(t)
	features := tests.Features{
		ConsumerGroups: true, // a durable consumer each
		Persistent:     true,
		// It means subscribers without a group, which see everything. Ours always
		// belong to a durable consumer.
		NewSubscriberReceivesOldMessages: false,
		// At least once.
		ExactlyOnceDelivery: false,
		// Messages of one subscription are in work side by side.
		GuaranteedOrder:                     false,
		GuaranteedOrderWithSingleSubscriber: false,
		// The server is in this process and cannot be restarted by a command:
		// TestServerRestarts does that.
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

// pubSub is what the suite tests. Each subscriber has its connection and slots, as if
// in a process of its own.
func (b *bench) pubSub(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	js, err := jetstream.New(natstest.Connect(t, b.server))
	if err != nil {
		t.Fatal(err)
	}
	sub := jetpubsub.NewSubscriber(jetpubsub.Config{
		Conn: js.Conn(), Slots: slots.New(16).Tenant("suite"), Grace: 200 * time.Millisecond,
		HandOver: 10 * time.Millisecond,
		Gone:     func(err error) bool { return errors.Is(err, jetstream.ErrStreamNotFound) },
		Ensure: func(ctx context.Context, topic string) (jetstream.Consumer, error) {
			stream, err := streamOf(ctx, js, topic)
			if err != nil {
				return nil, err
			}
			return stream.CreateOrUpdateConsumer(ctx, consumerConfig(group, 5*time.Second))
		},
	})
	return suitePublisher{publisher{JetStream: js}}, sub
}

func streamOf(ctx context.Context, js jetstream.JetStream, topic string) (jetstream.Stream, error) {
	return js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{topic}})
}

// suitePublisher makes the topic's stream first: the suite publishes to topics that
// nobody subscribed to yet.
type suitePublisher struct{ publisher }

func (p suitePublisher) Publish(topic string, messages ...*message.Message) error {
	if _, err := streamOf(context.Background(), p.JetStream, topic); err != nil {
		return err
	}
	return p.publisher.Publish(topic, messages...)
}

func consumerConfig(durable string, ackWait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxAckPending: 1000}
}

// ensure makes the consumer "d" of a run's stream.
func ensure(ctx context.Context, log *eventlog.Log, run string, ackWait time.Duration) (jetstream.Consumer, error) {
	return log.JetStream().CreateOrUpdateConsumer(ctx, events.RunStream(run), consumerConfig("d", ackWait))
}
