package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// flood sends messages of 100 bytes to a subject for each number, and waits for no answer.
func flood(t *testing.T, log *eventlog.Log, subject string, messages uint64) {
	t.Helper()
	for i := range messages {
		if err := log.Conn().Publish(fmt.Sprintf(subject, i), []byte(strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Conn().FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// waiting is how many submissions the intake has not dealt with.
func waiting(t *testing.T, log *eventlog.Log) uint64 {
	t.Helper()
	s, err := log.JetStream().Stream(t.Context(), events.IntakeStream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// TestFloodDelaysNobodyElse: one outsider sends thousands of messages at once and waits for no
// answer. Submissions of another run, of another kind in the same run and of a policy are answered
// while most of the flood still waits. All of the flood is dealt with in the end.
func TestFloodDelaysNobodyElse(t *testing.T) {
	many, invented := uint64(nightly.Count(2000, 10_000)), uint64(nightly.Count(1000, 10_000))
	for name, c := range map[string]struct {
		subject  string
		messages uint64
		rests    bool // it waits for the purge of each ten seconds
	}{
		"a product":         {"rondo.in.r.query.q%d.submitted", many, false},
		"a trainer":         {"rondo.in.r.batch.f%d.consumed", many, false},
		"a closed run":      {"rondo.in.old.query.q%d.submitted", many, false},
		"invented policies": {"rondo.in._.weights.p%d.submitted", invented, true},
		"invented kinds":    {"rondo.in.r.kind%d.x.exploded", invented, true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rests {
				t.Parallel()
			}
			log := house(t)
			servicetest.OpenRun(t, log, "quiet", servicetest.Config("a"))
			servicetest.Append(t, log, servicetest.Event(t, "quiet", events.BatchReadyType, "trainer",
				"1", events.BatchReady{Step: 1}))
			start(t, log)
			others := []submission{
				{subject: "rondo.in.quiet.batch.trainer.consumed", body: `{"step":1}`},
				{subject: "rondo.in.r.rollout.g000001-0.annotated", body: `{"text":"hm"}`},
				{subject: "rondo.in._.weights.small.activated", body: `{"version":0,"replica":"x"}`},
			}
			answered := func(k submission) {
				t.Helper()
				if a := send(t, log, k); a.Error != "" {
					t.Fatalf("%s: %s", k.subject, a.Error)
				}
			}
			for _, k := range others { // their queues are made
				answered(k)
			}
			flood(t, log, c.subject, c.messages)
			sent := waiting(t, log)
			for _, k := range others {
				answered(k)
				left := waiting(t, log)
				t.Logf("%d messages of the flood waited when it was sent, and %d when %s was answered", sent, left,
					k.subject)
				if left < c.messages/2 {
					t.Errorf("%s was answered when all but %d messages of the flood had been dealt with", k.subject,
						left)
				}
			}
			natstest.Eventually(t, "the flood is dealt with", func() bool { return waiting(t, log) == 0 })
		})
	}
}

// TestFloodLeavesRoom: one outsider sends without end, waits for no answer and has no quota.
// It is refused before the stream is full, and another outsider's submissions go through all
// the while, also after that.
func TestFloodLeavesRoom(t *testing.T) {
	log := house(t)
	servicetest.OpenRun(t, log, "quiet", servicetest.Config("a"))
	servicetest.Append(t, log, servicetest.Event(t, "quiet", events.BatchReadyType, "trainer",
		"1", events.BatchReady{Step: 1}))
	s, err := log.JetStream().Stream(t.Context(), events.IntakeStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = 2 << 20
	if _, err := log.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	quotas := DefaultQuotas()
	quotas.MessagesPerMinute = 0
	startIn(t, servicetest.Env(t, log), quotas)
	answers, err := log.Conn().SubscribeSync(log.Conn().NewRespInbox())
	if err != nil {
		t.Fatal(err)
	}
	refused := func() (n int) {
		for {
			m, err := answers.NextMsg(0)
			if err != nil {
				return n
			}
			if strings.Contains(string(m.Data), "more than there is room for beside others: submit it again in 1s") {
				n++
			}
		}
	}
	// It hears of submissions from here on: what waited before would have to be in work before any
	// of its queue is refused.
	if a := send(t, log, submission{subject: "rondo.in.quiet.batch.trainer.consumed",
		body: `{"step":1}`}); a.Error != "" {
		t.Fatal(a.Error)
	}
	const batch, most = 1000, 100
	last := most
	for i, total := 0, 0; i < last; i++ {
		for n := range batch {
			m := nats.NewMsg(fmt.Sprintf("rondo.in.r.query.q%d.submitted", i*batch+n))
			m.Data, m.Header = []byte(strings.Repeat("x", 100)), nats.Header{events.HeaderReply: {answers.Subject}}
			if err := log.Conn().PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if a := send(t, log, submission{subject: "rondo.in.quiet.batch.trainer.consumed",
			body: `{"step":1}`}); a.Error != "" {
			t.Fatalf("beside %d messages of a flood: %s", (i+1)*batch, a.Error)
		}
		if total += refused(); total > 0 && last == most {
			t.Logf("%d of %d messages are refused", total, (i+1)*batch)
			last = i + 10
		}
	}
	if last == most {
		t.Error("the flood is never refused")
	}
}
