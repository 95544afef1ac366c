package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// intake answers submissions as answer says; nil is silence.
func intake(t *testing.T, log *eventlog.Log, answer func(m jetstream.Msg) *events.IntakeAnswer) {
	t.Helper()
	consumer, err := log.Streams.EnsureConsumer(t.Context(),
		topology.ConsumersOf(topology.Intake)[0].ForQueue(topology.Queue{Name: "all",
			Filter: events.IntakePrefix + ">"}), "")
	if err != nil {
		t.Fatal(err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		a := answer(m)
		if err := m.Ack(); err != nil { // before the test can go on, and end
			t.Error(err)
		}
		if a != nil {
			body, err := json.Marshal(a)
			if err != nil {
				t.Error(err)
			}
			if err := log.Conn().Publish(m.Headers()[events.HeaderReply][0], body); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consuming.Stop)
}

func consumedStep(id string) eventlog.Submission {
	return eventlog.Submission{Run: run, Type: events.BatchConsumedType, Entity: "trainer", ID: id, Source: "me",
		Data: events.BatchConsumed{Step: 3}}
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	intake(t, log, func(m jetstream.Msg) *events.IntakeAnswer {
		h := m.Headers()
		if m.Subject() != "rondo.in.race.batch.trainer.consumed" || string(m.Data()) != `{"step":3}` ||
			h[events.HeaderMessageID][0] != "a" || h[events.HeaderSource][0] != "me" {
			return &events.IntakeAnswer{Error: "strange message " + m.Subject()}
		}
		return &events.IntakeAnswer{ID: "x", Sequence: 7}
	})
	if a, err := log.Submitter.Submit(t.Context(), consumedStep("a")); err != nil || a.ID != "x" || a.Sequence != 7 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if _, err := log.Submitter.Submit(t.Context(), consumedStep("b")); !errors.Is(err, eventlog.ErrRefused) ||
		!strings.Contains(err.Error(), "strange message") {
		t.Errorf("a refusal: %v", err)
	}
}

// An answer is lost with a connection. Who asks again, in the same call or in another, is answered.
func TestSubmitAfterALostAnswer(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		var asked atomic.Int64
		intake(t, log, func(jetstream.Msg) *events.IntakeAnswer {
			if asked.Add(1) == 1 {
				return nil
			}
			return &events.IntakeAnswer{Sequence: 7}
		})
		began := time.Now()
		if a, err := log.Submitter.Submit(t.Context(), consumedStep("a")); err != nil || a.Sequence != 7 {
			t.Errorf("answer %+v, %v", a, err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		if a, err := log.Submitter.Submit(t.Context(), consumedStep("a")); err != nil || a.Sequence != 7 {
			t.Errorf("asked again: %+v, %v", a, err)
		}
		if n := asked.Load(); n != 3 {
			t.Errorf("the intake was asked %d times, want 3", n)
		}
	})
}

// TestSubmitAgainAtOnce: who was refused, and states the same under the same id at once, is
// answered at once, although the server drops what has an id that it had a moment ago.
func TestSubmitAgainAtOnce(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		intake(t, log, func(jetstream.Msg) *events.IntakeAnswer { return &events.IntakeAnswer{Error: "not now"} })
		began := time.Now()
		for range 5 {
			if _, err := log.Submitter.Submit(t.Context(), consumedStep("a")); !errors.Is(err, eventlog.ErrRefused) {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 4*time.Second { // of virtual time
			t.Errorf("five answers took %s", took)
		}
	})
}

// A fact without an id could be stated twice: it is never repeated.
func TestSubmitWithoutIDIsNotRepeated(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		var asked atomic.Int64
		intake(t, log, func(jetstream.Msg) *events.IntakeAnswer { asked.Add(1); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		if _, err := log.Submitter.Submit(ctx, consumedStep("")); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, eventlog.ErrRefused) {
			t.Errorf("without an answer: %v", err)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the intake was asked %d times, want once", n)
		}
	})
}

func TestSubmittedBody(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	text := strings.Repeat("x", events.MaxPayload)
	bodies := make(chan []byte, 1)
	intake(t, log, func(m jetstream.Msg) *events.IntakeAnswer {
		if len(m.Data()) > 1000 {
			return &events.IntakeAnswer{Error: "the body travels inline"}
		}
		body, err := eventlog.SubmittedBody(context.Background(), log.Store(), m.Headers(), m.Data())
		if err != nil {
			return &events.IntakeAnswer{Error: err.Error()}
		}
		bodies <- body
		return &events.IntakeAnswer{}
	})
	s := eventlog.Submission{Run: run, Type: events.RolloutAnnotatedType, Entity: "g000001-0", ID: "a",
		Data: events.RolloutAnnotated{Text: text}}
	if _, err := log.Submitter.Submit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if body := <-bodies; string(body) != `{"text":"`+text+`"}` {
		t.Errorf("a body of %d bytes arrived", len(body))
	}
	ref, err := storage.PutBlob(t.Context(), log.Store(), []byte("short"))
	if err != nil {
		t.Fatal(err)
	}
	h := map[string][]string{events.HeaderDataRef: {ref.Key}}
	for name, change := range map[string]func(*storage.Ref){
		"too large":        func(r *storage.Ref) { r.Size = 1 << 40 },
		"another size":     func(r *storage.Ref) { r.Size++ },
		"another digest":   func(r *storage.Ref) { r.SHA256 = strings.Repeat("0", 64) },
		"not there":        func(r *storage.Ref) { r.Key += "x" },
		"out of the store": func(r *storage.Ref) { r.Key = "../../etc/passwd" },
	} {
		t.Run(name, func(t *testing.T) {
			wrong := ref
			change(&wrong)
			body, err := json.Marshal(wrong)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := eventlog.SubmittedBody(t.Context(), log.Store(), h, body); err == nil {
				t.Errorf("%s: %q was read", name, got)
			}
		})
	}
	if _, err := eventlog.SubmittedBody(t.Context(), log.Store(), h,
		[]byte("{")); !errors.Is(err, events.ErrMalformed) {
		t.Errorf("no reference: %v", err)
	}
}
