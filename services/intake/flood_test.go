package intake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

const (
	// probes are how many submissions of another outsider are timed.
	probes = 5
	// mostDelay is how many times as long as in a quiet intake a submission may take beside a flood, in the median of some. The flood has the machine's processors,
	// and a slot is free when one of its messages is done; behind all of it a submission takes thousands of times as long.
	mostDelay = 100
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

// median is how long a submission takes in the median of some.
func median(t *testing.T, log *eventlog.Log, k submission) time.Duration {
	t.Helper()
	var took []time.Duration
	for range probes {
		began := time.Now()
		if a := send(t, log, k); a.Error != "" {
			t.Fatalf("%s: %s", k.subject, a.Error)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[probes/2]
}

// TestFloodDelaysNobodyElse: one outsider sends thousands of messages at once and waits for no answer. Submissions of another run, of another kind in
// the same run and of a policy are answered while nearly all of the flood still waits, in a small multiple of the time that they take without it. All of
// the flood is dealt with in the end.
func TestFloodDelaysNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		subject  string
		messages uint64
	}{
		"a product": {"rondo.in.r.query.q%d.submitted", 10_000}, "a trainer": {"rondo.in.r.batch.f%d.consumed", 10_000},
		"invented policies": {"rondo.in._.weights.p%d.submitted", 2000}, "invented kinds": {"rondo.in.r.kind%d.x.exploded", 2000}, "a closed run": {"rondo.in.old.query.q%d.submitted", 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			log := house(t)
			servicetest.OpenRun(t, log, "quiet", servicetest.Config("a"))
			servicetest.Append(t, log, servicetest.Event(t, "quiet", events.BatchReadyType, "trainer", "1", events.BatchReady{Step: 1}))
			start(t, log)
			others := []submission{
				{subject: "rondo.in.quiet.batch.trainer.consumed", body: `{"step":1}`},
				{subject: "rondo.in.r.rollout.g000001-0.annotated", body: `{"text":"hm"}`},
				{subject: "rondo.in._.weights.small.activated", body: `{"version":0,"replica":"x"}`},
			}
			var quiet []time.Duration
			for _, k := range others {
				quiet = append(quiet, median(t, log, k))
			}
			flood(t, log, c.subject, c.messages)
			for i, k := range others {
				took := median(t, log, k)
				left := waiting(t, log)
				t.Logf("%s: %s without and %s beside a flood, of which %d messages wait", k.subject, quiet[i], took, left)
				if left < c.messages/2 {
					t.Errorf("%s was answered when all but %d messages of the flood had been dealt with", k.subject, left)
				}
				if took > mostDelay*quiet[i] {
					t.Errorf("%s took %s beside a flood and %s without", k.subject, took, quiet[i])
				}
			}
			began := time.Now()
			natstest.Eventually(t, "the flood is dealt with", func() bool { return waiting(t, log) == 0 })
			t.Logf("the flood took %s", time.Since(began))
		})
	}
}

// TestFloodLeavesRoom: one outsider sends without end, waits for no answer and has no quota. It is refused before the stream is full, and another outsider's
// submissions go through all the while, also after that.
func TestFloodLeavesRoom(t *testing.T) {
	log := house(t)
	servicetest.OpenRun(t, log, "quiet", servicetest.Config("a"))
	servicetest.Append(t, log, servicetest.Event(t, "quiet", events.BatchReadyType, "trainer", "1", events.BatchReady{Step: 1}))
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
	// It hears of submissions from here on: what waited before would have to be in work before any of its queue is refused.
	if a := send(t, log, submission{subject: "rondo.in.quiet.batch.trainer.consumed", body: `{"step":1}`}); a.Error != "" {
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
		if a := send(t, log, submission{subject: "rondo.in.quiet.batch.trainer.consumed", body: `{"step":1}`}); a.Error != "" {
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
