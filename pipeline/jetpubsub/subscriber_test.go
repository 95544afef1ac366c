package jetpubsub_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/slots"
)

// patience bounds how long a test waits: a busy machine is slow, and what never comes never comes.
const patience = 2 * time.Minute

// fill puts n events on a run's stream.
func fill(t testing.TB, log *eventlog.Log, run string, n int) {
	t.Helper()
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e, err := events.New(run, events.RolloutAnnotatedType, fmt.Sprintf("e%d", i),
			"0", events.RolloutAnnotated{Text: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// shared makes subscribers that share slots, as those of one service do, over a
// connection of their own.
func shared(t testing.TB, nc *nats.Conn, capacity *slots.Slots, grace time.Duration) *jetpubsub.Subscriber {
	t.Helper()
	log, err := eventlog.New(nc, natstest.Store(t))
	if err != nil {
		t.Fatal(err)
	}
	return jetpubsub.NewSubscriber(jetpubsub.Config{
		Conn: nc, Slots: capacity.Tenant("test"), Grace: grace, HandOver: 10 * time.Millisecond,
		Gone: func(error) bool { return false },
		Ensure: func(ctx context.Context, run string) (jetstream.Consumer, error) {
			return ensure(ctx, log, run, 3*time.Second)
		},
	})
}

func subscribe(t testing.TB, s *jetpubsub.Subscriber, run string) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return messages
}

func receive(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			t.Fatal("the subscription ended")
		}
		return m
	case <-time.After(patience):
		t.Fatal("no message came")
	}
	return nil
}

func consumerInfo(t testing.TB, log *eventlog.Log, run string) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := log.JetStream().Consumer(t.Context(), events.RunStream(run), "d")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestNeverMoreOnTheirWayThanSlots(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "one", 20)
	fill(t, b.log, "two", 20)
	capacity := slots.New(3)
	nc := natstest.Connect(t, b.server)
	one := subscribe(t, shared(t, nc, capacity, 0), "one")
	two := subscribe(t, shared(t, nc, capacity, 0), "two")
	taken := 0
	var work []*message.Message
	for len(work) < 3 {
		select {
		case m := <-one:
			work = append(work, m)
		case m := <-two:
			work = append(work, m)
		case <-time.After(patience):
			t.Fatal("not all slots are used")
		}
	}
	for range 30 {
		if out := consumerInfo(t, b.log, "one").NumAckPending + consumerInfo(t, b.log, "two").NumAckPending; out > 3 {
			// The server counts what it sent to a pull that was withdrawn at that moment, too;
			// that one comes to nobody.
			select {
			case <-one:
				t.Fatalf("%d messages are on their way to 3 slots", out)
			case <-two:
				t.Fatalf("%d messages are on their way to 3 slots", out)
			case <-time.After(200 * time.Millisecond):
			}
		}
		work[taken].Ack()
		taken++
		select {
		case m := <-one:
			work = append(work, m)
		case m := <-two:
			work = append(work, m)
		case <-time.After(patience):
			t.Fatal("a free slot is not used")
		}
	}
}

// One subscription has a backlog, the other nothing: the quiet one's pull must not lock half of the
// slots, and must not starve either.
func TestBusyAndQuietShareSlots(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "quiet", 0)
	fill(t, b.log, "busy", 0)
	capacity := slots.New(2)
	nc := natstest.Connect(t, b.server)
	quiet := subscribe(t, shared(t, nc, capacity, 0), "quiet")
	busy := subscribe(t, shared(t, nc, capacity, 0), "busy")
	natstest.Eventually(t, "both rest on a slot", func() bool {
		return consumerInfo(t, b.log, "quiet").NumWaiting == 1 && consumerInfo(t, b.log, "busy").NumWaiting == 1
	})
	fill(t, b.log, "busy", 400)
	receive(t, busy)
	held := receive(t, busy) // both slots are in use: the quiet pull gave its slot away
	fill(t, b.log, "quiet", 1)
	held.Ack()
	for {
		select {
		case m := <-quiet:
			m.Ack()
			return
		case m := <-busy:
			if consumerInfo(t, b.log, "busy").NumPending == 0 {
				t.Fatal("the quiet subscription starved until the busy one was done")
			}
			m.Ack()
		}
	}
}

// In virtual time: a handler works for twenty minutes on a message whose AckWait is 3 s.
func TestHeartbeatsOverLongWork(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		fill(t, b.log, "long", 1)
		capacity := slots.New(4)
		nc := natstest.Connect(t, b.server)
		sub := shared(t, nc, capacity, time.Second)
		messages, err := sub.Subscribe(t.Context(), "long")
		if err != nil {
			t.Fatal(err)
		}
		m := <-messages
		select {
		case again := <-messages:
			t.Fatalf("delivered again after %d deliveries, while in work", jetpubsub.DeliveryOf(again).NumDelivered)
		case <-time.After(20 * time.Minute):
		}
		m.Ack()
		time.Sleep(time.Minute)
		if info := consumerInfo(t, b.log, "long"); info.NumAckPending != 0 || info.NumRedelivered != 0 {
			t.Errorf("%d unacknowledged, %d redelivered; want none", info.NumAckPending, info.NumRedelivered)
		}
		sub.Close()
	})
}

// In virtual time: a message is acknowledged, and its run's turn at the log does not come for
// twenty minutes. Its slot is free meanwhile, and it is delivered to nobody else.
func TestAcknowledgementWaitsForItsTurn(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		fill(t, b.log, "turn", 1)
		capacity, requests := slots.New(1), slots.New(1)
		sub := jetpubsub.NewSubscriber(jetpubsub.Config{
			Conn: natstest.Connect(t, b.server), Slots: capacity.Tenant("test"), Requests: requests.Tenant("turn"),
			Gone: func(error) bool { return false },
			Ensure: func(ctx context.Context, run string) (jetstream.Consumer, error) {
				return ensure(ctx, b.log, run, 3*time.Second)
			},
		})
		messages, err := sub.Subscribe(t.Context(), "turn")
		if err != nil {
			t.Fatal(err)
		}
		m := <-messages
		turn := <-requests.Tenant("other").Ask(1).Lease()
		m.Ack()
		time.Sleep(20 * time.Minute)
		if load := capacity.Load(); load != 0 {
			t.Errorf("%g of the slots are in work, want none", load)
		}
		consumer, err := ensure(t.Context(), b.log, "turn", 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := consumer.FetchNoWait(1)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			t.Error("delivered again while its acknowledgement waited")
		}
		requests.End(turn, 1)
		time.Sleep(time.Minute)
		if info := consumerInfo(t, b.log, "turn"); info.NumAckPending != 0 || info.NumRedelivered != 0 {
			t.Errorf("%d unacknowledged, %d redelivered; want none", info.NumAckPending, info.NumRedelivered)
		}
		sub.Close()
	})
}
