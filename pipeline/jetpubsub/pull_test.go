package jetpubsub_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/slots"
)

// Three slots, ten messages and handlers that do not come back: the server has
// given out three, and no more.
func TestThreeSlotsHoldThreeMessages(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "three", 10)
	messages := subscribe(t, shared(t, natstest.Connect(t, b.server), slots.New(3), 0), "three")
	var work []*message.Message
	for range 3 {
		work = append(work, receive(t, messages))
	}
	select {
	case m := <-messages:
		t.Fatalf("message %s came with all slots in use", m.UUID)
	case <-time.After(100 * time.Millisecond):
	}
	if info := consumerInfo(t, b.log, "three"); info.NumAckPending != 3 ||
		info.NumPending != 7 || info.NumWaiting != 0 {
		t.Errorf("the server has %d given out, %d left and %d pulls waiting; want 3, 7 and 0", info.NumAckPending,
			info.NumPending, info.NumWaiting)
	}
	for range 7 {
		work[0].Ack()
		work = append(work[1:], receive(t, messages))
	}
	for _, m := range work {
		m.Ack()
	}
	natstest.Eventually(t, "all are acknowledged", func() bool {
		return consumerInfo(t, b.log,
			"three").NumAckPending == 0
	})
}

// In virtual time: the server is stopped and started again under a subscription with a message in
// work. That one is not handled twice, although its acknowledgement may be lost on a server that
// answers before it has its consumers, and those that come later arrive.
func TestServerRestarts(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		fill(t, b.log, "restart", 3)
		nc := natstest.Connect(t, b.server)
		messages := subscribe(t, jetpubsub.NewSubscriber(jetpubsub.Config{
			Conn: nc, Slots: slots.New(2).Tenant("test"), Gone: func(error) bool { return false },
			Ensure: func(ctx context.Context, run string) (jetstream.Consumer, error) {
				return ensure(ctx, b.log, run, 5*time.Minute)
			},
		}), "restart")
		inWork := receive(t, messages)
		receive(t, messages).Ack()
		if err := b.server.Restart(); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "the client is connected again", nc.IsConnected)
		inWork.Ack()
		if m := receive(t, messages); m.UUID != "3" {
			t.Errorf("message %s came, want 3", m.UUID)
		} else {
			m.Ack()
		}
		natstest.Eventually(t, "all are acknowledged", func() bool {
			info := consumerInfo(t, b.log, "restart")
			return info.NumAckPending == 0 && info.NumPending == 0
		})
		if n := consumerInfo(t, b.log, "restart").NumRedelivered; n != 0 {
			t.Errorf("%d messages were delivered twice", n)
		}
	})
}

// Of two processes that wait for messages the one with more free slots takes them: work
// that comes singly is spread.
func TestFreeProcessTakesTheMessage(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		loaded, idle := slots.New(4), slots.New(4)
		loadedConn := natstest.Connect(t, b.server)
		fill(t, b.log, "other", 3)
		other := subscribe(t, shared(t, loadedConn, loaded, 0), "other")
		for range 3 {
			receive(t, other)
		}
		fill(t, b.log, "spread", 0)
		busy := subscribe(t, shared(t, loadedConn, loaded, 0), "spread")
		free := subscribe(t, shared(t, natstest.Connect(t, b.server), idle, 0), "spread")
		time.Sleep(time.Second)
		for n := range 10 {
			e, err := events.New("spread", events.RolloutAnnotatedType, fmt.Sprintf("e%d", n),
				"0", events.RolloutAnnotated{Text: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.log.Appender.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			select {
			case m := <-busy:
				t.Errorf("message %s comes to the process with one free slot of four", m.UUID)
				m.Ack()
			case m := <-free:
				m.Ack()
			}
			time.Sleep(time.Second)
		}
	})
}

func TestSubscribersLeaveNoGoroutines(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "leak", 50)
	nc := natstest.Connect(t, b.server)
	subscribeOnce(t, nc, b, 1) // makes what stays: the consumer, the connection's inbox
	before := runtime.NumGoroutine()
	for range 10 {
		subscribeOnce(t, nc, b, 4)
	}
	natstest.Eventually(t, "the goroutines of closed subscribers have ended",
		func() bool { return runtime.NumGoroutine() <= before })
}

// subscribeOnce handles n messages and closes, with others handed out and not read.
func subscribeOnce(t *testing.T, nc *nats.Conn, b *bench, n int) {
	sub := shared(t, nc, slots.New(6), time.Second)
	messages, err := sub.Subscribe(t.Context(), "leak")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		receive(t, messages).Ack()
	}
	sub.Close()
}
