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

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runtime/jetpubsub"
)

// The line is cut again and again while messages are in work: each message is handled, and none stays behind.
func TestLineIsCut(t *testing.T) {
	b := newBench(t)
	const n = 300
	fill(t, b.log, "cut", n)
	nc, line := natstest.ConnectOver(t, b.server)
	messages := subscribe(t, shared(nc, b.log, jetpubsub.NewSlots(8), 8, 0), "cut")
	var mu sync.Mutex
	handled := map[string]int{}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case m := <-messages:
				go func() {
					time.Sleep(time.Millisecond)
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
		eventually(t, fmt.Sprintf("%d are handled", at), func() bool { return count() >= at })
		line.Cut()
		line.Mend()
	}
	// What was on its way to the cut line comes again after the AckWait at the latest.
	deadline := time.Now().Add(patience)
	for count() < n && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if count() != n {
		t.Errorf("%d of %d messages were handled", count(), n)
	}
}

// A worker that dies with messages in work loses none: they come to another one.
func TestWorkerDies(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		b := newBench(t)
		fill(t, b.log, "dies", 8)
		dying, line := natstest.ConnectOver(t, b.server)
		first := shared(dying, b.log, jetpubsub.NewSlots(5), 5, 0)
		messages, err := first.Subscribe(t.Context(), "dies")
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			<-messages
		}
		line.Cut()
		dying.Close()
		second := shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(8), 8, 0)
		if messages, err = second.Subscribe(t.Context(), "dies"); err != nil {
			t.Fatal(err)
		}
		again := 0
		for range 8 {
			m := <-messages
			if jetpubsub.DeliveryOf(m).Delivered > 1 {
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
		sub := shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(4), 4, 20*time.Second)
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
			t.Errorf("%d pending and %d unacknowledged, want %d that were not handled", info.NumPending, info.NumAckPending, want)
		}
		// Another worker gets the rest without waiting for the AckWait.
		rest := subscribe(t, shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(4), 4, 0), "end")
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
	sub := shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(1), 1, 10*time.Millisecond)
	messages, err := sub.Subscribe(t.Context(), "grace")
	if err != nil {
		t.Fatal(err)
	}
	m := receive(t, messages)
	sub.Close()
	if m.Context().Err() == nil {
		t.Error("the handler is not told that its time is over")
	}
	rest := subscribe(t, shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(1), 1, 0), "grace")
	if again := receive(t, rest); jetpubsub.DeliveryOf(again).Delivered != 2 {
		t.Errorf("delivery %d, want 2", jetpubsub.DeliveryOf(again).Delivered)
	}
}

func TestConsumerIsMadeAgain(t *testing.T) {
	b := newBench(t)
	fill(t, b.log, "again", 3)
	messages := subscribe(t, shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(1), 1, 0), "again")
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
	sub := jetpubsub.NewSubscriber(natstest.Connect(t, b.server), jetpubsub.Config{
		Slots: jetpubsub.NewSlots(1), Room: 1,
		Gone: func(err error) bool { return deleted.Load() },
		Ensure: func(ctx context.Context, run string) (jetpubsub.Consumer, error) {
			c := jetpubsub.Consumer{Stream: events.RunStream(run), Durable: "d", AckWait: 30 * time.Second}
			return c, ensure(ctx, b.log, c)
		},
	})
	messages := subscribe(t, sub, "gone")
	receive(t, messages).Ack()
	eventually(t, "it is acknowledged", func() bool { return consumerInfo(t, b.log, "gone").NumAckPending == 0 })
	deleted.Store(true)
	if err := b.log.DeleteRun(t.Context(), "gone"); err != nil {
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
		if err := b.log.EnsureStreams(t.Context()); err != nil {
			t.Fatal(err)
		}
		fill(t, b.log, "verdict", 1)
		sub := shared(natstest.Connect(t, b.server), b.log, jetpubsub.NewSlots(1), 1, 0)
		messages, err := sub.Subscribe(t.Context(), "verdict")
		if err != nil {
			t.Fatal(err)
		}
		refuse := func(v *jetpubsub.Verdict, want time.Duration) {
			t.Helper()
			m := <-messages
			if v != nil {
				jetpubsub.DeliveryOf(m).Nacked(*v)
			}
			at := time.Now()
			m.Nack()
			next := <-messages
			if took := time.Since(at); took < want || took > want+want/5+100*time.Millisecond {
				t.Errorf("came again after %s, want %s", took, want)
			}
			jetpubsub.DeliveryOf(next).Nacked(jetpubsub.Verdict{})
			next.Nack() // at once, for the next step
		}
		refuse(nil, jetpubsub.Backoff(1))
		refuse(&jetpubsub.Verdict{After: time.Hour}, time.Hour)
		refuse(nil, jetpubsub.Backoff(5))
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
