package jetpubsub_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// publisher puts messages on the stream that holds their topic, and waits until the server has
// stored each: Watermill's test suite needs one. The message's UUID is the server's key against
// duplicates, and its metadata are headers.
type publisher struct{ JetStream jetstream.JetStream }

var _ message.Publisher = publisher{}

// Publish publishes the messages in their order, and stops at the first that is not stored.
func (p publisher) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		out := nats.NewMsg(topic)
		out.Data = m.Payload
		for key, value := range m.Metadata {
			out.Header[key] = []string{value}
		}
		if _, err := p.JetStream.PublishMsg(m.Context(), out, jetstream.WithMsgID(m.UUID)); err != nil {
			return fmt.Errorf("publish message %s on %s: %w", m.UUID, topic, err)
		}
	}
	return nil
}

// Close has nothing to close: the connection belongs to the caller.
func (publisher) Close() error { return nil }
