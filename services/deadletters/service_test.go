package deadletters

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

const rollout = "g000001-0"

func house(t *testing.T) *eventlog.Log {
	t.Helper()
	log := natstest.Log(t)
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env) })
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	servicetest.StartRollout(t, log, "r", rollout, "a")
	return log
}

// consumer makes the n-th consumer of a service as the topology has it.
func consumer(t *testing.T, log *eventlog.Log, service string, n int) jetstream.Consumer {
	t.Helper()
	spec := topology.ConsumersOf(service)[n].For("r", "pool-shell")
	if spec.Shared() {
		spec = spec.ForQueue(topology.Queue{Name: "all", Filter: events.IntakePrefix + ">"})
	}
	c, err := log.Streams.EnsureConsumer(t.Context(), spec, "pool-shell")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	msg, err := c.Next(jetstream.FetchMaxWait(30 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// terminate gives a message up as a service does.
func terminate(t *testing.T, c jetstream.Consumer, reason string) {
	t.Helper()
	if err := next(t, c).TermWithReason(reason); err != nil {
		t.Fatal(err)
	}
}

// exhaust has a message delivered until the server gives it up.
func exhaust(t *testing.T, c jetstream.Consumer) {
	t.Helper()
	for range c.CachedInfo().Config.MaxDeliver {
		if err := next(t, c).Nak(); err != nil {
			t.Fatal(err)
		}
	}
	if msg, err := c.Next(jetstream.FetchMaxWait(time.Second)); err == nil {
		t.Fatalf("%s comes once more", msg.Subject())
	}
}

func letters(t *testing.T, log *eventlog.Log, stream string, n int) []events.DeadLettered {
	t.Helper()
	var list []events.DeadLettered
	for _, e := range servicetest.Wait(t, log, events.Catalogue, events.DeadLetteredType, stream, n) {
		list = append(list, servicetest.Data[events.DeadLettered](t, e))
	}
	return list
}

func TestTerminatedWorkFailsItsRollout(t *testing.T) {
	log := house(t)
	terminate(t, consumer(t, log, topology.Generator, 0), "the handler panicked: poison")
	letter := letters(t, log, "RONDO_r", 1)[0]
	if letter.Consumer != "generator-started-v1" || letter.Subject != "rondo.v1.r.rollout."+rollout+".started" ||
		letter.Reason != "the handler panicked: poison" {
		t.Errorf("the dead letter is %+v", letter)
	}
	failed := servicetest.WaitData[events.RolloutFailed](t, log, "r", events.RolloutFailedType, rollout)
	if failed.Stage != events.StageGenerator || failed.Class != events.ClassInternal ||
		failed.Message != letter.Reason {
		t.Errorf("failed as %+v", failed)
	}
}

func TestExhaustedDeliveriesFailTheRollout(t *testing.T) {
	log := house(t)
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, rollout,
		"0", events.RolloutFinished{Task: "a"}))
	exhaust(t, consumer(t, log, topology.Scorer, 0))
	letter := letters(t, log, "RONDO_r", 1)[0]
	if letter.Consumer != "scorer-v1" || letter.Reason != "given up after 20 deliveries" {
		t.Errorf("the dead letter is %+v", letter)
	}
	if failed := servicetest.WaitData[events.RolloutFailed](t, log, "r", events.RolloutFailedType,
		rollout); failed.Stage != events.StageScorer {
		t.Errorf("failed as %+v", failed)
	}
}

// TestRolloutThatWentOn is not failed: another delivery of the same message was handled.
func TestRolloutThatWentOn(t *testing.T) {
	log := house(t)
	c := consumer(t, log, topology.Generator, 0)
	turn := servicetest.Event(t, "r", events.TurnSampledType, rollout,
		"0", events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c"}}})
	turn.Route = "pool-shell"
	servicetest.Append(t, log, turn)
	terminate(t, c, "too late")
	letters(t, log, "RONDO_r", 1)
	if failed := servicetest.All(t, log, "r", events.RolloutFailedType); len(failed) != 0 {
		t.Errorf("the rollout failed: %s", failed[0].Data)
	}
}

// TestEpisodeThatWasNotEnded fails: its last turn is on the log, and nobody writes
// the trajectory any more.
func TestEpisodeThatWasNotEnded(t *testing.T) {
	log := house(t)
	c := consumer(t, log, topology.Generator, 0)
	last := servicetest.Event(t, "r", events.TurnSampledType, rollout, "0", events.TurnSampled{})
	last.Route = runfile.RouteFinal
	servicetest.Append(t, log, last)
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutAnnotatedType, rollout,
		"n", events.RolloutAnnotated{Text: "hm"}))
	terminate(t, c, "the store is full")
	servicetest.Wait(t, log, "r", events.RolloutFailedType, rollout, 1)
}

// TestUndeliverableSubmission is kept in the dead letter and deleted from the intake's stream,
// which would hold it for ever.
func TestUndeliverableSubmission(t *testing.T) {
	log := house(t)
	body := []byte(`{"step":1}`)
	msg := nats.NewMsg("rondo.in.r.batch.trainer.consumed")
	msg.Data = body
	for range 2 {
		if _, err := log.JetStream().PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	c := consumer(t, log, topology.Intake, 0)
	terminate(t, c, "the reason")
	if letter := letters(t, log, events.IntakeStream, 1)[0]; letter.Sequence != 1 || letter.Reason != "the reason" {
		t.Errorf("the first dead letter is %+v", letter)
	}
	exhaust(t, c)
	letter := letters(t, log, events.IntakeStream, 2)[1]
	if letter.Subject != msg.Subject || letter.Sequence != 2 || letter.Body == nil {
		t.Fatalf("the second dead letter is %+v", letter)
	}
	if kept, err := storage.GetBlob(t.Context(), log.Store(), *letter.Body); err != nil || !bytes.Equal(kept, body) {
		t.Errorf("it holds %q: %v", kept, err)
	}
	natstest.Eventually(t, "the intake's stream is empty", func() bool {
		submissions, err := log.JetStream().Stream(t.Context(), events.IntakeStream)
		if err != nil {
			t.Fatal(err)
		}
		return submissions.CachedInfo().State.Msgs == 0
	})
}

// TestAdvisoriesThatMeanNothing are of other applications, of runs that are gone, of other kinds of
// work, or no advisories; none of them holds up the others.
func TestAdvisoriesThatMeanNothing(t *testing.T) {
	log := house(t)
	s := &Service{store: log.Store(), js: log.JetStream()}
	var letters []events.Event
	handle := func(text string) error {
		facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Data: []byte(text), Time: time.Now()})
		letters = append(letters, facts...)
		return err
	}
	if err := handle(`{`); err == nil || !strings.Contains(err.Error(), "read advisory") {
		t.Errorf("no JSON: %v", err)
	}
	for _, text := range []string{
		`{"stream":"ORDERS","consumer":"x","stream_seq":1,"deliveries":3}`,
		`{"stream":"RONDO_DEAD","consumer":"deadletters-v1","stream_seq":1,"deliveries":3}`,
	} {
		if err := handle(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if len(letters) != 0 {
		t.Errorf("dead letters of others: %v", servicetest.IDs(letters))
	}
	for _, text := range []string{
		`{"stream":"RONDO_gone","consumer":"scorer-v1","stream_seq":7,"deliveries":20}`,
		`{"stream":"RONDO_r","consumer":"scorer-v1","stream_seq":700,"deliveries":20}`,
		`{"stream":"RONDO","consumer":"weightpublisher-v1","stream_seq":1,"deliveries":20}`,
	} {
		if err := handle(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if len(letters) != 3 {
		t.Errorf("dead letters: %v", servicetest.IDs(letters))
	}
}

// TestAdvisoryTwice is one dead letter and one failure.
func TestAdvisoryTwice(t *testing.T) {
	log := house(t)
	terminate(t, consumer(t, log, topology.Generator, 0), "once")
	letters(t, log, "RONDO_r", 1)
	dead, err := log.JetStream().Stream(t.Context(), events.DeadStream)
	if err != nil {
		t.Fatal(err)
	}
	advisory, err := dead.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{store: log.Store(), js: log.JetStream()}
	for range 2 {
		if _, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Subject: advisory.Subject,
			Data: advisory.Data, Time: advisory.Time}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	if n := len(servicetest.All(t, log, "r", events.RolloutFailedType)); n != 1 {
		t.Errorf("%d failures", n)
	}
}

// TestAdvisoryIsAheadOfTheLeader: in a cluster the server that gave a message up may have an event
// that the leader of its stream does not have yet. Its rollout fails all the same.
func TestAdvisoryIsAheadOfTheLeader(t *testing.T) {
	t.Parallel()
	log := natstest.Cluster(t, 3).Log(t)
	natstest.Eventually(t, "the cluster has the streams", func() bool { return log.Streams.Ensure(t.Context()) == nil })
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	s := &Service{store: log.Store(), js: log.JetStream()}
	in, err := log.Incarnation(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	advisory := fmt.Sprintf(`{"stream":"RONDO_r","consumer":"generator-v1","stream_seq":%d,"reason":"it panicked"}`,
		in.LastSeq+1)
	asked, err := log.Conn().SubscribeSync("$JS.API.STREAM.INFO." + events.RunStream("r"))
	if err != nil {
		t.Fatal(err)
	}
	var facts []events.Event
	done := make(chan error, 1)
	go func() {
		var err error
		facts, err = s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Data: []byte(advisory), Time: time.Now()})
		done <- err
	}()
	if _, err := asked.NextMsg(10 * time.Second); err != nil {
		t.Error("nobody asked how far the leader has come:", err)
	}
	servicetest.StartRollout(t, log, "r", events.RolloutID(events.GroupID(1), 0), "a")
	if err := <-done; err != nil || len(facts) != 2 || facts[0].Type != events.RolloutFailedType ||
		facts[1].Type != events.DeadLetteredType {
		t.Errorf("facts %v, %v", servicetest.IDs(facts), err)
	}
}
