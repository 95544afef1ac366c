package jetpubsub

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// Verdict is what is to be done with a message that was not handled.
type Verdict struct {
	// Terminate gives the message up, with the reason in the server's advisory.
	Terminate bool
	Reason    string
	// After is when the message is to come again.
	After time.Duration
}

// Delivery is the JetStream side of a message.
type Delivery struct {
	Subject   string
	Header    nats.Header
	Stream    string
	Seq       uint64 // of the stream
	Delivered uint64 // how many times, with this one
	Pending   uint64 // messages that wait behind it
	Time      time.Time

	reply   string
	verdict atomic.Pointer[Verdict]
}

// Nacked says what a negative acknowledgement of the message means; without it the message comes again after a
// back-off.
func (d *Delivery) Nacked(v Verdict) { d.verdict.Store(&v) }

type deliveryKey struct{}

// DeliveryOf finds the delivery behind a message, nil when it comes from elsewhere.
func DeliveryOf(m *message.Message) *Delivery {
	d, _ := m.Context().Value(deliveryKey{}).(*Delivery)
	return d
}

func newDelivery(m *nats.Msg) (*Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("message on %s: %w", m.Subject, err)
	}
	return &Delivery{
		Subject: m.Subject, Header: m.Header, Stream: meta.Stream, Seq: meta.Sequence.Stream,
		Delivered: meta.NumDelivered, Pending: meta.NumPending, Time: meta.Timestamp, reply: m.Reply,
	}, nil
}

// Words of JetStream's acknowledgement protocol.
var (
	ackDone     = []byte("+ACK")
	ackProgress = []byte("+WPI")
)

// nak is the body that gives a message back; it comes again after a while.
func nak(after time.Duration) []byte {
	if after <= 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay":%d}`, int64(after))
}

// refusal is the body that settles a message that was not handled, and whether it ends the message.
func (d *Delivery) refusal() (body []byte, final bool) {
	v := d.verdict.Load()
	switch {
	case v == nil:
		return nak(Backoff(d.Delivered)), false
	case v.Terminate:
		return append([]byte("+TERM "), v.Reason...), true
	}
	return nak(v.After), false
}

// Backoff is the rest after a delivery that failed: from 100 ms doubling up to 30 s.
func Backoff(delivered uint64) time.Duration {
	return min(30*time.Second, 100*time.Millisecond<<min(max(delivered, 1)-1, 10))
}

// message wraps the delivery for Watermill. Headers stay with the delivery.
func (d *Delivery) message(ctx context.Context, id string, data []byte) *message.Message {
	m := message.NewMessage(id, data)
	m.SetContext(context.WithValue(ctx, deliveryKey{}, d))
	return m
}
