package jetpubsub

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/natstest"
)

// ackBench has acks over one connection and plays the server's part over another.
type ackBench struct {
	*acks
	server   *nats.Conn
	released atomic.Int64
}

func newAckBench(t *testing.T) *ackBench {
	server := natstest.Server(t)
	a, err := newAcks(natstest.Connect(t, server))
	if err != nil {
		t.Fatal(err)
	}
	return &ackBench{acks: a, server: natstest.Connect(t, server)}
}

const ackSubject = "deliveries.1"

func (b *ackBench) ack() { b.send(ackSubject, ackDone, func() { b.released.Add(1) }) }

// hears subscribes to acknowledgements; what is sent after it returns arrives.
func (b *ackBench) hears(t *testing.T) *nats.Subscription {
	t.Helper()
	sub, err := b.server.SubscribeSync(ackSubject)
	if err == nil {
		err = b.server.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func heardAck(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatalf("no acknowledgement came: %v", err)
	}
	if string(m.Data) != "+ACK" {
		t.Errorf("%q was sent", m.Data)
	}
	return m
}

// wants waits for the numbers of slots given back and of acknowledgements that are open.
func (b *ackBench) wants(t *testing.T, released int64, open int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); b.released.Load() != released || len(b.ids()) != open; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d released and %d open, want %d and %d", b.released.Load(), len(b.ids()), released, open)
		}
	}
}

func TestLostConfirmation(t *testing.T) {
	b := newAckBench(t)
	sub := b.hears(t)
	b.ack()
	heardAck(t, sub) // and says nothing
	b.again(time.Hour)
	b.wants(t, 0, 1)
	b.again(0)
	if err := heardAck(t, sub).Respond(nil); err != nil {
		t.Fatal(err)
	}
	b.wants(t, 1, 0)
	b.again(0)
	if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
		t.Errorf("%q was sent again after its confirmation", m.Data)
	}
}

// A consumer that is away for a moment: the slot is free, and the acknowledgement is not forgotten.
func TestNobodyAnswers(t *testing.T) {
	b := newAckBench(t)
	b.ack()
	b.wants(t, 1, 1)
	sub := b.hears(t)
	b.again(0)
	if err := heardAck(t, sub).Respond(nil); err != nil {
		t.Fatal(err)
	}
	b.wants(t, 1, 0)
}

func TestAckIsGivenUp(t *testing.T) {
	b := newAckBench(t)
	sub := b.hears(t)
	b.ack()
	heardAck(t, sub)
	for range ackTries - 1 {
		b.wants(t, 0, 1)
		b.again(0)
		heardAck(t, sub)
	}
	b.again(0)
	b.wants(t, 1, 0)
}

func TestEndWaitsForConfirmations(t *testing.T) {
	b := newAckBench(t)
	sub := b.hears(t)
	b.ack()
	ended := make(chan struct{})
	go func() {
		b.end(time.Minute)
		close(ended)
	}()
	m := heardAck(t, sub)
	select {
	case <-ended:
		t.Error("ended with an acknowledgement open")
	case <-time.After(20 * time.Millisecond):
	}
	if err := m.Respond(nil); err != nil {
		t.Fatal(err)
	}
	<-ended
	b.wants(t, 1, 0)
}

func TestEndWaitsNotForever(t *testing.T) {
	b := newAckBench(t)
	b.hears(t)
	b.ack()
	b.end(time.Millisecond)
	b.wants(t, 1, 0)
}
