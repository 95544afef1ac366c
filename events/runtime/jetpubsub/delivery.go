package jetpubsub

import (
	"context"
	"encoding/json"
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

// ackTimeout bounds a confirmed acknowledgement. One that is lost costs a delivery that finds nothing to do.
const ackTimeout = 5 * time.Second

func (d *Delivery) ack(nc *nats.Conn) error {
	_, err := nc.Request(d.reply, []byte("+ACK"), ackTimeout)
	return err
}

// nak gives the message back; it comes again after a while.
func (d *Delivery) nak(nc *nats.Conn, after time.Duration) error {
	if after <= 0 {
		return nc.Publish(d.reply, []byte("-NAK"))
	}
	body, err := json.Marshal(map[string]int64{"delay": int64(after)})
	if err != nil {
		return err
	}
	return nc.Publish(d.reply, append([]byte("-NAK "), body...))
}

func (d *Delivery) terminate(nc *nats.Conn, reason string) error {
	_, err := nc.Request(d.reply, []byte("+TERM "+reason), ackTimeout)
	return err
}

// beat tells the server that the message is in work.
func (d *Delivery) beat(nc *nats.Conn) error { return nc.Publish(d.reply, []byte("+WPI")) }

// refuse settles a message that was not handled.
func (d *Delivery) refuse(nc *nats.Conn) error {
	v := d.verdict.Load()
	switch {
	case v == nil:
		return d.nak(nc, Backoff(d.Delivered))
	case v.Terminate:
		return d.terminate(nc, v.Reason)
	}
	return d.nak(nc, v.After)
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
