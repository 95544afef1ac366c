package jetpubsub_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/slots"
)

// The line is cut again and again while messages are in work: each message is
// handled, and none stays behind.
func TestLineIsCut(t *testing.T) {
	b := newBench(t)
	const n = 300
	fill(t, b.log, "cut", n)
	nc, line := natstest.ConnectOver(t, b.server)
	messages := subscribe(t, shared(t, nc, slots.New(8), 0), "cut")
	var mu sync.Mutex
	handled := map[string]int{}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case m := <-messages:
				go func() {
					mu.Lock()
					handled[m.UUID]++
					mu.Unlock()
					m.Ack()
				}()
			case <-stop:
				return
			}
		}
	}()
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(handled)
	}
	for at := n / 6; at < n; at += n / 6 {
		natstest.Eventually(t, fmt.Sprintf("%d are handled", at), func() bool { return count() >= at })
		line.Cut()
		line.Mend()
	}
	// What was on its way to the cut line comes again after the AckWait at the latest.
	natstest.Eventually(t, "all messages are handled", func() bool { return count() == n })
}

// A worker that dies with messages in work loses none: they come to another one.
func TestWorkerDies(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		fill(t, b.log, "dies", 8)
		dying, line := natstest.ConnectOver(t, b.server)
		first := shared(t, dying, slots.New(5), 0)
		messages, err := first.Subscribe(t.Context(), "dies")
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			<-messages
		}
		line.Cut()
		dying.Close()
		second := shared(t, natstest.Connect(t, b.server), slots.New(8), 0)
		if messages, err = second.Subscribe(t.Context(), "dies"); err != nil {
			t.Fatal(err)
		}
		again := 0
		for range 8 {
			m := <-messages
			if jetpubsub.DeliveryOf(m).NumDelivered > 1 {
				again++
			}
			m.Ack()
		}
		if again != 5 {
			t.Errorf("%d messages came again, want the 5 of the dead worker", again)
		}
		first.Close()
		second.Close()
	})
}

func TestEndingLetsWorkFinish(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		fill(t, b.log, "end", 10)
		sub := shared(t, natstest.Connect(t, b.server), slots.New(4), 20*time.Second)
		ctx, stop := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx, "end")
		if err != nil {
			t.Fatal(err)
		}
		inWork := []*message.Message{receive(t, messages), receive(t, messages)}
		stop()
		// What was being handed out at that moment may still come; then nothing more does.
		for quiet := false; !quiet; {
			select {
			case m, ok := <-messages:
				if !ok {
					t.Fatal("the channel closed with messages in work")
				}
				inWork = append(inWork, m)
			case <-time.After(200 * time.Millisecond):
				quiet = true
			}
		}
		if len(inWork) > 4 {
			t.Errorf("%d messages were handed out to 4 slots", len(inWork))
		}
		for _, m := range inWork {
			if m.Context().Err() != nil {
				t.Error("the context of a message in work ended before its grace time")
			}
			m.Ack()
		}
		if _, ok := <-messages; ok {
			t.Error("a message came after the end")
		}
		sub.Close()
		info := consumerInfo(t, b.log, "end")
		if want := uint64(10 - len(inWork)); info.NumPending+uint64(info.NumAckPending) < want {
			t.Errorf("%d pending and %d unacknowledged, want %d that were not handled", info.NumPending,
				info.NumAckPending, want)
		}
		// Another worker gets the rest without waiting for the AckWait.
		rest := subscribe(t, shared(t, natstest.Connect(t, b.server), slots.New(4), 0), "end")
		began := time.Now()
		for range 10 - len(inWork) {
			receive(t, rest).Ack()
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the rest came after %s, as if it had been lost", took)
		}
	})
}

func TestGraceEnds(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "grace", 1)
	sub := shared(t, natstest.Connect(t, b.server), slots.New(1), 10*time.Millisecond)
	messages, err := sub.Subscribe(t.Context(), "grace")
	if err != nil {
		t.Fatal(err)
	}
	m := receive(t, messages)
	sub.Close()
	if m.Context().Err() == nil {
		t.Error("the handler is not told that its time is over")
	}
	rest := subscribe(t, shared(t, natstest.Connect(t, b.server), slots.New(1), 0), "grace")
	if again := receive(t, rest); jetpubsub.DeliveryOf(again).NumDelivered != 2 {
		t.Errorf("delivery %d, want 2", jetpubsub.DeliveryOf(again).NumDelivered)
	}
}

func TestConsumerIsMadeAgain(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "again", 3)
	messages := subscribe(t, shared(t, natstest.Connect(t, b.server), slots.New(1), 0), "again")
	for range 3 {
		receive(t, messages).Ack()
	}
	if err := b.log.JetStream().DeleteConsumer(t.Context(), events.RunStream("again"), "d"); err != nil {
		t.Fatal(err)
	}
	// A new consumer begins with the first event: handlers find that there is nothing to do.
	for range 3 {
		receive(t, messages).Ack()
	}
}

func TestStreamGoneEndsTheSubscription(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "gone", 1)
	var deleted atomic.Bool
	sub := jetpubsub.NewSubscriber(jetpubsub.Config{
		Conn: b.log.JetStream().Conn(), Slots: slots.New(1).Tenant("test"),
		Gone: func(err error) bool { return deleted.Load() },
		Ensure: func(ctx context.Context, run string) (jetstream.Consumer, error) {
			return ensure(ctx, b.log, run, 30*time.Second)
		},
	})
	messages := subscribe(t, sub, "gone")
	receive(t, messages).Ack()
	natstest.Eventually(t, "it is acknowledged", func() bool {
		return consumerInfo(t, b.log,
			"gone").NumAckPending == 0
	})
	deleted.Store(true)
	if err := b.log.Streams.DeleteRun(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	select {
	case _, ok := <-messages:
		if ok {
			t.Error("a message came from a stream that is gone")
		}
	case <-time.After(patience):
		t.Error("the subscription does not notice that the stream is gone")
	}
}

func TestVerdicts(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		if err := b.log.Streams.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		fill(t, b.log, "verdict", 1)
		sub := shared(t, natstest.Connect(t, b.server), slots.New(1), 0)
		messages, err := sub.Subscribe(t.Context(), "verdict")
		if err != nil {
			t.Fatal(err)
		}
		refuse := func(v *jetpubsub.Verdict, least, want time.Duration) {
			t.Helper()
			m := <-messages
			if v != nil {
				jetpubsub.DeliveryOf(m).Nacked(*v)
			}
			at := time.Now()
			m.Nack()
			next := <-messages
			if took := time.Since(at); took < least || took > want+want/5+100*time.Millisecond {
				t.Errorf("came again after %s, want %s to %s", took, least, want)
			}
			jetpubsub.DeliveryOf(next).Nacked(jetpubsub.Verdict{})
			next.Nack() // at once, for the next step
		}
		refuse(nil, 50*time.Millisecond, 100*time.Millisecond) // the first time
		refuse(&jetpubsub.Verdict{After: time.Hour}, time.Hour, time.Hour)
		refuse(nil, 800*time.Millisecond, 1600*time.Millisecond) // the fifth time
		m := <-messages
		jetpubsub.DeliveryOf(m).Nacked(jetpubsub.Verdict{Terminate: true, Reason: "the answer is 42"})
		m.Nack()
		select {
		case <-messages:
			t.Error("a terminated message came again")
		case <-time.After(time.Hour):
		}
		dead, err := b.log.JetStream().Stream(t.Context(), events.DeadStream)
		if err != nil {
			t.Fatal(err)
		}
		letter, err := dead.GetMsg(t.Context(), 1)
		if err != nil {
			t.Fatalf("no dead letter: %v", err)
		}
		if !containsAll(string(letter.Data), `"the answer is 42"`, `"stream_seq":1`, `RONDO_verdict`) {
			t.Errorf("the dead letter says %s", letter.Data)
		}
		sub.Close()
	})
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
