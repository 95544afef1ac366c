package program

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// state appends a fact of a rollout behind another one, 0 for none.
func state(t *testing.T, log *eventlog.Log, typ events.Type, rollout string, prev uint64, data any) uint64 {
	t.Helper()
	e, err := events.New("r", typ, rollout, "0", data)
	e.Source, e.Prev = "test", prev
	if err == nil {
		e, _, err = log.Appender.Append(t.Context(), e)
	}
	if err != nil {
		t.Error(err)
	}
	return e.Seq
}

// TestStanding: what is said of a run that does not grow names the last event of ten open rollouts,
// the oldest first, and how far each consumer is.
func TestStanding(t *testing.T) {
	log := natstest.Log(t)
	if text := standing(t.Context(), log, "r"); !strings.Contains(text, "read its events: ") ||
		!strings.Contains(text, "list its consumers: ") {
		t.Errorf("of a run without a stream is said:\n%s", text)
	}
	if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	starts := make([]uint64, 13)
	for i := range starts {
		starts[i] = state(t, log, events.RolloutStartedType, fmt.Sprint("g1-", i), 0,
			events.RolloutStarted{Group: "g1"})
	}
	state(t, log, events.RolloutFailedType, "g1-0", starts[0], events.RolloutFailed{})
	state(t, log, events.RolloutFinishedType, "g1-1", starts[1], events.RolloutFinished{})
	stream := events.RunStream("r")
	if _, err := log.JetStream().CreateConsumer(t.Context(), stream,
		jetstream.ConsumerConfig{Durable: "idle"}); err != nil {
		t.Fatal(err)
	}
	consumer, err := log.JetStream().CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: "busy"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		m, err := consumer.Next()
		if err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want []string
	for i := 2; i < 12; i++ { // that of g1-1 is younger
		want = append(want, fmt.Sprintf("rollout g1-%d is open, its last event is rollout.started at sequence %d", i,
			starts[i]))
	}
	want = append(want, "2 more rollouts are open",
		"consumer busy: 10 pending, 2 not acknowledged, delivered up to sequence 5, acknowledged up to 3",
		"consumer idle: 15 pending, 0 not acknowledged, delivered up to sequence 0, acknowledged up to 0")
	if text := standing(t.Context(), log, "r"); text != strings.Join(want, "\n") {
		t.Errorf("the run stands there:\n%s\nwant\n%s", text, strings.Join(want, "\n"))
	}
	for _, i := range []int{2, 3} {
		state(t, log, events.RolloutFailedType, fmt.Sprint("g1-", i), starts[i], events.RolloutFailed{})
	}
	if text := standing(t.Context(), log, "r"); !strings.Contains(text,
		"rollout g1-1 is open, its last event is rollout.finished at sequence 15") {
		t.Errorf("the youngest is missing:\n%s", text)
	}
}

// TestGrows: it waits for the stream, and then for events beyond those that are there.
func TestGrows(t *testing.T) {
	log := natstest.Log(t)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	writer.Go(func() {
		if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
			t.Error(err)
		}
		for i := 0; ctx.Err() == nil; i++ {
			state(t, log, events.RolloutStartedType, fmt.Sprint("g1-", i), 0, events.RolloutStarted{})
		}
	})
	for range 2 {
		before, err := length(t.Context(), log, "r")
		if err != nil {
			t.Error(err)
		}
		Grows(t, log, "r", 3, "in the test")
		if n, err := length(t.Context(), log, "r"); err != nil || n < before+3 {
			t.Errorf("it had %d events and has %d, %v", before, n, err)
		}
	}
}
