package jetpubsub

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/retry"
)

// Verdict says what the server is to do with a message that was not handled.
type Verdict struct {
	// Terminate gives the message up, with the reason in the server's advisory.
	Terminate bool
	Reason    string
	// After is when the message is to come again.
	After time.Duration
}

// Delivery is the JetStream side of a message: what arrived, and what the server says about it.
type Delivery struct {
	Msg jetstream.Msg
	*jetstream.MsgMetadata

	verdict atomic.Pointer[Verdict]
	slot    slot
}

// Nacked says what a negative acknowledgement of the message means; without it the message
// comes again after a back-off.
func (d *Delivery) Nacked(v Verdict) { d.verdict.Store(&v) }

type deliveryKey struct{}

// DeliveryOf finds the delivery behind a message, nil when it comes from elsewhere.
func DeliveryOf(m *message.Message) *Delivery {
	d, _ := m.Context().Value(deliveryKey{}).(*Delivery)
	return d
}

// refuse tells the server what to do with a message that was not handled.
func (d *Delivery) refuse() error {
	v := d.verdict.Load()
	switch {
	case v == nil:
		return d.Msg.NakWithDelay(deliverAgain.Delay(int(d.NumDelivered)))
	case v.Terminate:
		return d.Msg.TermWithReason(v.Reason)
	}
	return d.Msg.NakWithDelay(v.After)
}

// deliverAgain is how long a message waits after a delivery that failed.
var deliverAgain = retry.Policy{First: 100 * time.Millisecond, Most: 30 * time.Second}

// message is the delivery as Watermill's message: its UUID as published, or its sequence in the
// stream, and its headers as metadata.
func (d *Delivery) message(ctx context.Context) *message.Message {
	headers := d.Msg.Headers()
	id := headers.Get(jetstream.MsgIDHeader)
	if id == "" {
		id = strconv.FormatUint(d.Sequence.Stream, 10)
	}
	m := message.NewMessage(id, d.Msg.Data())
	for key, values := range headers {
		if key != jetstream.MsgIDHeader && len(values) > 0 {
			m.Metadata[key] = values[0]
		}
	}
	m.SetContext(context.WithValue(ctx, deliveryKey{}, d))
	return m
}
