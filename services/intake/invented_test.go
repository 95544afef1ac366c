package intake

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// TestManyInventedNames: somebody without a key invents a run for each of thousands of messages and
// waits for no answer. All of them share one consumer and one tenant, and little memory.
// Submissions of another run are answered while almost all of the flood waits. All of it is refused
// in the end, and a new run can be opened.
func TestManyInventedNames(t *testing.T) {
	invented := int64(nightly.Count(2000, 10_000))
	log := house(t)
	s, err := newService(servicetest.Env(t, log), Quotas{DeadLettersPerDay: 10})
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error { return pipeline.RunEffect(ctx, env, s.effect()) })
	quiet := submission{subject: "rondo.in.r.rollout.g000001-0.annotated", body: `{"text":"hm"}`}
	if a := send(t, log, quiet); a.Error != "" {
		t.Fatal(a.Error)
	}
	var most struct{ queues, consumers int }
	look := func() {
		s.queued.mu.Lock()
		most.queues = max(most.queues, len(s.queued.queues))
		s.queued.mu.Unlock()
		most.consumers = max(most.consumers, len(consumers(t, log)))
	}
	flood(t, log, "rondo.in.x%d.batch.trainer.consumed", uint64(invented))
	beside := func() {
		for range 5 {
			before, left := dealtWith(t, log)
			if a := send(t, log, quiet); a.Error != "" {
				t.Fatal(a.Error)
			}
			served, _ := dealtWith(t, log)
			t.Logf("%d of %d invented names waited, %d were served beside one submission of another run", left,
				invented, served-before)
			if served-before > 20*slots {
				t.Errorf("a submission of another run waited for %d of the flood", served-before)
			}
			look()
		}
	}
	beside()
	open := events.IntakeSubject("fresh", events.RunOpenedType, "fresh")
	before, left := dealtWith(t, log)
	if left < invented/2 {
		t.Errorf("%d of the flood wait: too few to see who waits for whom", left)
	}
	if a := send(t, log, submission{subject: open, body: openedBody(t, func(*runfile.RunConfig) {})}); a.Error != "" {
		t.Fatal(a.Error)
	}
	served, _ := dealtWith(t, log)
	t.Logf("a run was opened when %d of the flood had been served, while %d waited", served-before, left)
	if served-before > left*9/10 { // it would be all of them behind one queue
		t.Errorf("the opening of a run waited for %d of %d invented names", served-before, invented)
	}
	beside()
	natstest.Eventually(t, "the flood is dealt with", func() bool {
		look()
		return waiting(t, log) == 0
	})
	if most.queues > mostStrangers+8 || most.consumers > 8 {
		t.Errorf("%d invented names made %d queues in memory and %d consumers", invented, most.queues, most.consumers)
	}
	if a := send(t, log, submission{subject: "rondo.in.fresh.run.fresh.closed", body: `{}`}); a.Error != "" {
		t.Errorf("close the run that was opened beside the flood: %s", a.Error)
	}
}

// dealtWith is how many submissions the intake has dealt with, and how many wait.
func dealtWith(t *testing.T, log *eventlog.Log) (served, left int64) {
	t.Helper()
	s, err := log.JetStream().Stream(t.Context(), events.IntakeStream)
	if err != nil {
		t.Fatal(err)
	}
	state := s.CachedInfo().State
	return int64(state.LastSeq) - int64(state.Msgs), int64(state.Msgs)
}

// consumers are the names of the consumers of the intake's stream.
func consumers(t *testing.T, log *eventlog.Log) (names []string) {
	t.Helper()
	stream, err := log.JetStream().Stream(t.Context(), events.IntakeStream)
	if err != nil {
		t.Fatal(err)
	}
	list := stream.ConsumerNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// TestTwoIntakesServeStrangers: two intakes share the consumer of strangers. A run that was known,
// and has a consumer of its own on the server, can be a stranger.
func TestTwoIntakesServeStrangers(t *testing.T) {
	log := house(t)
	queue, _ := topology.QueueOf("rondo.in.old.query.q.submitted")
	if _, err := log.Streams.EnsureConsumer(t.Context(), topology.ConsumersOf(topology.Intake)[0].ForQueue(queue),
		""); err != nil {
		t.Fatal(err)
	}
	start(t, log)
	start(t, log)
	var senders sync.WaitGroup
	for _, subject := range []string{"rondo.in.old.query.q.submitted", "rondo.in.x.query.q.submitted",
		"rondo.in._.weights.none.activated"} {
		senders.Go(func() {
			for range 50 {
				if a := send(t, log, submission{subject: subject, body: `{}`}); a.Error == "" ||
					strings.Contains(a.Error, "given up") {
					t.Errorf("%s: %+v", subject, a)
				}
			}
		})
	}
	senders.Wait()
	natstest.Eventually(t, "the strangers' consumer is gone", func() bool {
		for _, name := range consumers(t, log) {
			if strings.Contains(name, topology.Strangers) || strings.Contains(name, queue.Name) {
				return false
			}
		}
		return true
	})
}

// TestConsumerOfAKilledIntake: an intake was killed while it served a run as a stranger. The
// consumer that it leaves behind holds up nobody whose run the next one knows.
func TestConsumerOfAKilledIntake(t *testing.T) {
	log := house(t)
	known := submission{subject: "rondo.in.r.rollout.g000001-0.annotated", body: `{"text":"hm"}`}
	queue, _ := topology.QueueOf(known.subject)
	if _, err := log.Streams.EnsureConsumer(t.Context(),
		topology.ConsumersOf(topology.Intake)[0].ForStrangers([]topology.Queue{queue}), ""); err != nil {
		t.Fatal(err)
	}
	start(t, log)
	if a := send(t, log, known); a.Error != "" {
		t.Error(a.Error)
	}
}
