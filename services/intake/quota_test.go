package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// startWith starts an intake with quotas.
func startWith(t *testing.T, log *eventlog.Log, q Quotas) {
	t.Helper()
	startIn(t, servicetest.Env(t, log), q)
}

func startIn(t *testing.T, env pipeline.Env, q Quotas) {
	t.Helper()
	servicetest.Start(t, func(ctx context.Context) error { return RunWith(ctx, env, q) })
}

// TestFloodOfMessages: an outsider who floods the intake is told when to come again, costs no place
// on the log, and holds up no other run.
func TestFloodOfMessages(t *testing.T) {
	log := house(t)
	servicetest.OpenRun(t, log, "quiet", servicetest.Config("a"))
	startWith(t, log, Quotas{MessagesPerMinute: 50, DeadLettersPerDay: 5})
	letters, over, began := 0, 0, time.Now()
	for i := range 200 {
		answer := send(t, log, submission{subject: "rondo.in.r.nonsense", body: fmt.Sprint(i)})
		switch {
		case answer.Error == "":
			t.Fatal("nonsense was taken in")
		case answer.RetryAfterMS > 0:
			over++
			if !strings.Contains(answer.Error, "50 messages") {
				t.Fatalf("over the quota: %q", answer.Error)
			}
		}
	}
	if letters = len(servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)); letters != 5 {
		t.Errorf("%d dead letters instead of 5", letters)
	}
	if least := 149 - int(50*time.Since(began).Minutes()); over < least {
		t.Errorf("only %d of 200 messages were over the quota of 50 a minute, want %d", over, least)
	}
	if a := send(t, log, submission{subject: "rondo.in.quiet.run.quiet.paused", body: `{}`}); a.Error != "" {
		t.Errorf("another run: %s", a.Error)
	}
	if a := send(t, log, submission{subject: "rondo.in._.weights.small.activated",
		body: `{"version":0,"replica":"x"}`}); a.Error != "" {
		t.Errorf("a policy: %s", a.Error)
	}
}

// TestWhatIsOverTheQuotaComesLater: a client states what is over the quota again,
// and it becomes one fact.
func TestWhatIsOverTheQuotaComesLater(t *testing.T) {
	log := house(t)
	startWith(t, log, Quotas{MessagesPerMinute: 120})
	for i := range 123 {
		if _, err := log.Submitter.Submit(t.Context(),
			eventlog.Submission{Run: "r", Type: events.RolloutAnnotatedType, Entity: "g000001-0", ID: fmt.Sprint(i),
				Data: events.RolloutAnnotated{Text: "again"}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(servicetest.All(t, log, "r", events.RolloutAnnotatedType)); n != 123 {
		t.Errorf("%d remarks", n)
	}
	if n := len(servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// TestFloodOfBytes: what a message has the intake read counts, too: bodies,
// files, workspaces and logs.
func TestFloodOfBytes(t *testing.T) {
	log := house(t)
	startWith(t, log, Quotas{BytesPerMinute: 100_000})
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	finished := o.finished("x1-0", nil)
	workspace := servicetest.Blob(t, log.Store(), make([]byte, 99_000))
	finished.Workspace = &workspace
	if refused := o.state(events.RolloutFinishedType, "x1-0", finished); !strings.Contains(refused, "100000 bytes") {
		t.Errorf("the workspace was read: %q", refused)
	}
	body := string(mustJSON(t, servicetest.Blob(t, log.Store(), make([]byte, 60_000))))
	for i := range 3 {
		a := send(t, log, submission{"rondo.in.r.rollout.g000001-0.annotated",
			map[string]string{events.HeaderDataRef: "x"}, body})
		if over := a.RetryAfterMS > 0; over != (i > 0) {
			t.Errorf("body %d: %q", i, a.Error)
		}
		if strings.Contains(a.Error, "x00") {
			t.Errorf("body %d: the answer quotes it: %q", i, a.Error)
		}
	}
}

// TestDeadLettersExpire: a refused message leaves the log after its time, and `rondo gc` (Reach)
// names its body until then.
func TestDeadLettersExpire(t *testing.T) {
	log := house(t)
	startWith(t, log, Quotas{DeadLettersFor: time.Second})
	sent := time.Now()
	if a := send(t, log, submission{subject: "rondo.in.r.nonsense", body: "a stranger's text"}); a.Error == "" {
		t.Fatal("nonsense was taken in")
	}
	body := storage.BlobKey(storage.Digest([]byte("a stranger's text")))
	// What comes behind the letter stays, with the gap in front of it.
	if a := send(t, log, submission{subject: "rondo.in._.weights.small.activated",
		body: `{"version":0,"replica":"x"}`}); a.Error != "" {
		t.Fatal(a.Error)
	}
	reaches := func() bool {
		found := false
		if _, err := log.Archive.Reach(t.Context(), events.Catalogue, 1, func(key string) error {
			found = found || key == body
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if !reaches() && time.Since(sent) < time.Second/2 {
		t.Error("the body of a fresh letter is unreachable")
	}
	natstest.Eventually(t, "the letter expires", func() bool { return !reaches() })
	if n := len(servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)); n != 0 {
		t.Errorf("%d letters are left", n)
	}
	if n := len(servicetest.All(t, log, events.Catalogue, events.WeightsActivatedType)); n != 1 {
		t.Errorf("%d facts behind it", n)
	}
}

func TestAllowances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := pipeline.Env{Logger: slog.New(slog.DiscardHandler)}
		m, err := newMeter(Quotas{MessagesPerMinute: 60, BytesPerMinute: 600, DeadLettersPerDay: 24}, env)
		if err != nil {
			t.Fatal(err)
		}
		operator, trainer, other := sender{name: "operator of run r"}, sender{name: "trainer of weights a"},
			sender{name: "trainer of weights b"}
		message := func(from sender, size int) time.Duration {
			err := m.message(from, pipeline.Message{Data: make([]byte, size)})
			if err == nil {
				return 0
			}
			refused, _ := errors.AsType[*refusal](err)
			return refused.again
		}
		for range 60 {
			if wait := message(operator, 1); wait != 0 {
				t.Fatalf("within the quota: %s", wait)
			}
		}
		if wait := message(operator, 1); wait != time.Second {
			t.Errorf("over the quota: %s", wait)
		}
		if wait := message(trainer, 1000); wait != 0 {
			t.Errorf("one large message, of an empty bucket: %s", wait)
		}
		if wait := message(trainer, 300); wait != 30*time.Second {
			t.Errorf("behind it: %s", wait)
		}
		if wait := message(other, 300); wait != 0 {
			t.Errorf("another sender: %s", wait)
		}
		time.Sleep(time.Second)
		if wait := message(operator, 1); wait != 0 {
			t.Errorf("a second later: %s", wait)
		}
		for i := range 24 {
			if !m.records(operator) {
				t.Errorf("letter %d", i)
			}
		}
		if m.records(operator) {
			t.Error("too many letters")
		}
		time.Sleep(time.Hour)
		if !m.records(operator) || m.records(operator) {
			t.Error("an hour later it is not one letter")
		}
		// Strangers run out together, however many names they have, and push nobody out.
		taken := 0
		for i := range 3 * rememberedSenders {
			if message(sender{name: fmt.Sprintf("operator of run r%d", i), stranger: true}, 0) == 0 {
				taken++
			}
		}
		if taken != 60*strangersShare {
			t.Errorf("%d messages of strangers were taken", taken)
		}
		if n := m.strangers.Len(); n > rememberedSenders {
			t.Errorf("%d strangers are remembered", n)
		}
		if m.records(operator) {
			t.Error("strangers made a sender's account anew")
		}
	})
	for _, q := range []Quotas{{MessagesPerMinute: -1}, {BytesPerMinute: -1}, {DeadLettersPerDay: -1},
		{DeadLettersFor: time.Millisecond}, {DeadLettersFor: -time.Hour}} {
		if q.Validate() == nil {
			t.Errorf("%+v is taken", q)
		}
	}
	if err := DefaultQuotas().Validate(); err != nil {
		t.Error(err)
	}
}
