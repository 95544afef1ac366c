package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// submission is a message to the intake, as any NATS client can send it.
type submission struct {
	subject string
	header  map[string]string
	body    string
}

// send publishes a message to the intake and returns the intake's answer.
func send(t *testing.T, log *eventlog.Log, k submission) events.IntakeAnswer {
	t.Helper()
	sub, err := log.Conn().SubscribeSync(log.Conn().NewRespInbox())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	msg := nats.NewMsg(k.subject)
	msg.Data = []byte(k.body)
	msg.Header[events.HeaderReply] = []string{sub.Subject}
	for name, value := range k.header {
		msg.Header[name] = []string{value}
	}
	publishing, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := log.JetStream().PublishMsg(publishing, msg); err != nil {
		t.Fatal(err)
	}
	resp, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatalf("%s: no answer: %v", k.subject, err)
	}
	var answer events.IntakeAnswer
	if err := json.Unmarshal(resp.Data, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func start(t *testing.T, log *eventlog.Log) (stop func()) {
	t.Helper()
	env := servicetest.Env(t, log)
	return servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env) })
}

// house is a log with an open run "r" whose feed "trainer" has reached step 2, with one rollout of
// one turn, and with a closed run "old".
func house(t *testing.T) *eventlog.Log {
	t.Helper()
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	servicetest.OpenRun(t, log, "old", servicetest.Config("a"))
	servicetest.CloseRun(t, log, "old")
	servicetest.StartRollout(t, log, "r", "g000001-0", "a")
	servicetest.Append(t, log, servicetest.Event(t, "r", events.TurnSampledType, "g000001-0",
		"0", events.TurnSampled{FinishReason: "stop"}))
	for step := int64(1); step <= 2; step++ {
		servicetest.Append(t, log, servicetest.Event(t, "r", events.BatchReadyType, "trainer", events.Ordinal(step),
			events.BatchReady{Step: step}))
	}
	return log
}

func openedBody(t *testing.T, change func(*runfile.RunConfig)) string {
	t.Helper()
	cfg := servicetest.Config("a")
	change(&cfg)
	body, err := json.Marshal(events.RunOpened{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestFactsThatOutsidersState(t *testing.T) {
	log := house(t)
	start(t, log)
	large, err := json.Marshal(map[string]string{"text": strings.Repeat("x", 9000)})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := json.Marshal(servicetest.Blob(t, log.Store(), large))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		submission
		run string
		id  string
	}{
		{submission{"rondo.in.fresh.run.fresh.opened", nil, openedBody(t, func(*runfile.RunConfig) {})}, "fresh",
			"fresh/run.fresh/opened/0"},
		{submission{"rondo.in.r.run.r.paused", map[string]string{events.HeaderMessageID: "p1"}, `{"reason":"lunch"}`},
			"r", "r/run.r/paused/p1"},
		{submission{"rondo.in.r.run.r.resumed", map[string]string{events.HeaderMessageID: "p2"}, `{}`},
			"r", "r/run.r/resumed/p2"},
		{submission{"rondo.in.r.batch.trainer.consumed",
			map[string]string{events.HeaderMessageID: "c2", events.HeaderSource: "verl"}, `{"step":2}`}, "r",
			"r/batch.trainer/consumed/c2"},
		{submission{"rondo.in.r.rollout.g000001-0.annotated",
			map[string]string{events.HeaderMessageID: "n", events.HeaderDataRef: "x"}, string(ref)}, "r",
			"r/rollout.g000001-0/annotated/n"},
		{submission{"rondo.in.r.rollout.g000001-0.invalidated", map[string]string{events.HeaderMessageID: "i"},
			`{"reason":"leaked"}`}, "r", "r/rollout.g000001-0/invalidated/i"},
		{submission{"rondo.in._.weights.small.activated", map[string]string{events.HeaderMessageID: "a"},
			`{"version":0,"replica":"x"}`}, events.Catalogue, "_/weights.small/activated/a"},
		{submission{"rondo.in.r.run.r.closed", nil, `{"reason":"done"}`}, "r", "r/run.r/closed/0"},
	} {
		answer := send(t, log, c.submission)
		if answer.ID != c.id || answer.Error != "" {
			t.Errorf("%s is answered %+v, want %s", c.subject, answer, c.id)
			continue
		}
		e, err := log.Event(t.Context(), c.run, answer.Sequence)
		if err != nil || e.ID != c.id {
			t.Errorf("%s is not on the log: %+v, %v", c.id, e, err)
		}
	}
	consumed := servicetest.Wait(t, log, "r", events.BatchConsumedType, "trainer", 1)[0]
	if consumed.Source != "outside/verl" {
		t.Errorf("the source is %q", consumed.Source)
	}
	servicetest.Wait(t, log, events.Catalogue, events.RunOpenedType, "fresh", 1)
	servicetest.Wait(t, log, events.Catalogue, events.RunClosedType, "r", 1) // the closing is copied from the run
}

// message is a message as the runtime hands it to the service.
func message(seq uint64, k submission) pipeline.Message {
	h := nats.Header{}
	for name, value := range k.header {
		h[name] = []string{value}
	}
	return pipeline.Message{Subject: k.subject, Header: h, Data: []byte(k.body), Seq: seq,
		Time: time.Now(), Delivered: 1}
}

func handler(t *testing.T, log *eventlog.Log) *Service {
	t.Helper()
	s, err := newService(servicetest.Env(t, log), DefaultQuotas())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSameMessageIsOneFact delivers each message again: at once, as after a crash between the
// append and the acknowledgement, to another process, and long after other facts followed it.
func TestSameMessageIsOneFact(t *testing.T) {
	log := house(t)
	opening := message(1, submission{subject: "rondo.in.fresh.run.fresh.opened",
		body: openedBody(t, func(*runfile.RunConfig) {})})
	messages := []pipeline.Message{
		opening,
		message(2, submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":1}`}),
		message(3, submission{"rondo.in.r.batch.trainer.consumed",
			map[string]string{events.HeaderMessageID: "c2"}, `{"step":2}`}),
		message(4, submission{subject: "rondo.in.fresh.run.fresh.paused", body: `{}`}),
		message(5, submission{subject: "rondo.in._.weights.small.activated", body: `{"version":0,"replica":"x"}`}),
		message(6, submission{subject: "rondo.in.r.nonsense", body: `{}`}),
		message(7, submission{subject: "rondo.in.fresh.run.fresh.closed", body: `{}`}),
	}
	for range 3 {
		s := handler(t, log) // a process that remembers nothing
		for _, m := range messages {
			for range 2 {
				if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// The intake's own window is over: the same id comes as a new message.
	late := messages[2]
	late.Seq, late.Time = 99, time.Now().Add(24*time.Hour)
	if err := handler(t, log).effect().Record(t.Context(), pipeline.Env{Log: log}, late); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"r", "fresh", events.Catalogue} {
		seen := map[string]bool{}
		for _, id := range servicetest.IDs(servicetest.All(t, log, run)) {
			if seen[id] {
				t.Errorf("%s stands twice", id)
			}
			seen[id] = true
		}
	}
	if n := len(servicetest.All(t, log, "r", events.BatchConsumedType)); n != 2 {
		t.Errorf("%d batches were consumed instead of 2", n)
	}
	if letters := servicetest.All(t, log, events.Catalogue, events.DeadLetteredType); len(letters) != 1 {
		t.Errorf("dead letters: %v", servicetest.IDs(letters))
	}
	if n := len(servicetest.All(t, log, events.Catalogue, events.RunOpenedType)); n != 3 {
		t.Errorf("%d openings in the catalogue instead of 3", n)
	}
}

func TestIDOfAnotherFactIsRefused(t *testing.T) {
	log := house(t)
	start(t, log)
	id := map[string]string{events.HeaderMessageID: "c"}
	if a := send(t, log, submission{"rondo.in.r.batch.trainer.consumed", id, `{"step":1}`}); a.Error != "" {
		t.Fatal(a.Error)
	}
	// behind the window of the intake's stream
	m := message(77, submission{"rondo.in.r.batch.trainer.consumed", id, `{"step":2}`})
	_, _, err := handler(t, log).take(t.Context(), sender{}, m, false)
	if err == nil || !strings.Contains(err.Error(), `"c" was used for another`) {
		t.Errorf("another fact under the same id: %v", err)
	}
	m.Data = []byte(` {"step": 1}`)
	if facts, stored, err := handler(t, log).take(t.Context(), sender{}, m, false); err != nil || len(facts) > 0 ||
		stored.ID != "r/batch.trainer/consumed/c" {
		t.Errorf("the same fact, spelled otherwise: %v, %+v, %v", facts, stored, err)
	}
}

// TestOnlyInboxesAreAnswered shows that nobody can make the intake publish elsewhere.
func TestOnlyInboxesAreAnswered(t *testing.T) {
	log := house(t)
	s := handler(t, log)
	heard, err := log.Conn().SubscribeSync("rondo.v1.>")
	if err != nil {
		t.Fatal(err)
	}
	before := len(servicetest.All(t, log, "r"))
	for _, reply := range []string{
		"rondo.v1.r.run.r.closed", "rondo.in.r.run.r.closed", "$JS.API.STREAM.DELETE.RONDO_r", "_INBOX.>",
		"_INBOX.*", "_INBOX", "_INBOX.a b",
		"_INBOX.x 2\r\n{}\r\nPUB rondo.v1.r.run.r.closed", "",
	} {
		m := message(5, submission{subject: "rondo.in.r.nonsense"})
		m.Header[events.HeaderReply] = []string{reply}
		s.answer(m, events.IntakeAnswer{Error: "no"})
		if inbox.MatchString(reply) {
			t.Errorf("%q counts as an inbox", reply)
		}
	}
	if err := log.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := heard.Pending(); n != 0 || err != nil {
		t.Errorf("%d messages were published: %v", n, err)
	}
	if after := len(servicetest.All(t, log, "r")); after != before {
		t.Errorf("answers came to stand on the log")
	}
	if reply := log.Conn().NewRespInbox(); !inbox.MatchString(reply) {
		t.Errorf("%s is an inbox", reply)
	}
}

// TestLastDeliveryKeepsTheContent: what the intake cannot take in for reasons of its own does not
// vanish when the intake gives it up.
func TestLastDeliveryKeepsTheContent(t *testing.T) {
	log := house(t)
	broken := servicetest.Append(t, log, servicetest.Event(t, "r", events.BatchReadyType,
		"trainer", "3", "not a batch"))
	m := message(9, submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":1}`})
	s := handler(t, log)
	cause := s.effect().Record(t.Context(), pipeline.Env{Log: log}, m)
	if cause == nil {
		t.Fatalf("the feed's last batch at sequence %d cannot be read, but the message was taken in", broken.Seq)
	}
	m.Delivered = 20
	last := s.effect()
	last.Handle = func(ctx context.Context, m pipeline.Message) ([]events.Event,
		error) {
		return s.giveUp(ctx, m, cause)
	}
	for range 2 {
		if err := last.Record(t.Context(), pipeline.Env{Log: log}, m); err != nil {
			t.Fatal(err)
		}
	}
	letter := servicetest.WaitData[events.DeadLettered](t, log, events.Catalogue, events.DeadLetteredType, "RONDO_IN-9")
	if !strings.Contains(letter.Reason, "20 deliveries") || letter.Body == nil {
		t.Errorf("the dead letter is %+v", letter)
	}
}

// TestConcurrentIntakes lets two intakes take in the facts of many outsiders, with everybody racing
// for the same chains and the same new run.
func TestConcurrentIntakes(t *testing.T) {
	log := house(t)
	start(t, log)
	start(t, log)
	const outsiders, facts = 8, 10
	done := make(chan error, outsiders)
	for i := range outsiders {
		go func() {
			done <- func() error {
				ctx := t.Context()
				_, err := log.Submitter.Submit(ctx, eventlog.Submission{Run: "race", Type: events.RunOpenedType,
					Entity: "race", Data: events.RunOpened{Config: func() runfile.RunConfig {
						cfg := servicetest.Config("a")
						cfg.Seed = int64(i % 2)
						return cfg
					}()}})
				if err != nil && !strings.Contains(err.Error(), "another configuration") {
					return err
				}
				for j := range facts {
					_, err := log.Submitter.Submit(ctx, eventlog.Submission{
						Run: "r", Type: events.RolloutAnnotatedType, Entity: "g000001-0",
						ID:   fmt.Sprintf("%d-%d", i, j),
						Data: events.RolloutAnnotated{Text: fmt.Sprint(i, j)},
					})
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range outsiders {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(servicetest.All(t, log, "race", events.RunOpenedType)); n != 1 {
		t.Errorf("the run was opened %d times", n)
	}
	notes := servicetest.All(t, log, "r", events.RolloutAnnotatedType)
	if len(notes) != outsiders*facts {
		t.Errorf("%d remarks instead of %d", len(notes), outsiders*facts)
	}
	tail := uint64(0)
	for _, e := range servicetest.All(t, log, "r") {
		if e.Entity != "g000001-0" {
			continue
		}
		if e.Prev != tail {
			t.Errorf("%s follows %d, but the last link is %d", e.ID, e.Prev, tail)
		}
		tail = e.Seq
	}
}

// TestRules: each type that outsiders may state has a row, and no other has.
func TestRules(t *testing.T) {
	for _, typ := range events.Types() {
		if _, ruled := rules[typ]; ruled != typ.FromOutside() {
			t.Errorf("%s: outsiders may state it: %t; the intake has a rule: %t", typ, typ.FromOutside(), ruled)
		}
	}
}
