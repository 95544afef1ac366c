package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// TestOneOutsiderFloods: an outsider sends garbage as fast as it can, each message under another
// name. It is told to wait, costs the log a few dead letters, and a trainer of the same run is
// answered at once when its message's turn comes: it need not send it again.
func TestOneOutsiderFloods(t *testing.T) {
	t.Parallel()
	flood := nightly.Count(2000, 10_000) // messages before another outsider's
	dir := initKeys(t)
	s := serve(t, dir, auth.ConfigFile)
	admin := adminLog(t, s, dir)
	servicetest.OpenRun(t, admin, run, servicetest.Config("fix"))
	servicetest.Append(t, admin, servicetest.Event(t, run, events.BatchReadyType, "trainer",
		"1", events.BatchReady{Step: 1}))
	command(t, "auth", "user", "shop", "--out", dir, "--role", "product", "--run", run)
	command(t, "auth", "user", "torch", "--out", dir, "--role", "trainer", "--run", run, "--feed",
		"trainer", "--policy", "small")
	shop, torch := connect(t, s, creds(dir, "shop")), connect(t, s, creds(dir, "torch"))

	// What would be counted for others it may not send.
	for _, subject := range []string{"rondo.in.r.batch.trainer.consumed", "rondo.in.r.run.r.paused",
		"rondo.in.r.rollout.x1-0.scored", "rondo.in.other.query.q.submitted", "rondo.in._.weights.small.submitted",
		"rondo.in.r.nonsense"} {
		if shop.mayPublish(t, subject) {
			t.Errorf("a product may publish to %s", subject)
		}
	}
	for i := range flood {
		if err := shop.Publish(fmt.Sprintf("rondo.in.r.query.q%d.submitted", i), []byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	last := ask(t, shop, "rondo.in.r.query.last.submitted", "garbage")
	trainer := ask(t, torch, "rondo.in.r.batch.trainer.consumed", `{"step":1}`)

	own, err := eventlog.New(connect(t, s, creds(dir, topology.Intake)).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, own)
	quotas := intake.DefaultQuotas()
	quotas.MessagesPerMinute, quotas.DeadLettersPerDay = float64(flood)/10, 20
	began := time.Now()
	servicetest.Start(t, func(ctx context.Context) error { return intake.RunWith(ctx, env, quotas) })
	if a := answered(t, last); a.RetryAfterMS <= 0 {
		t.Errorf("after a flood the outsider is answered %+v", a)
	}
	if a := answered(t, trainer); a.Error != "" || a.Sequence == 0 {
		t.Errorf("another outsider of the run is answered %+v", a)
	}
	t.Logf("behind %d messages the trainer waited %s", flood, time.Since(began).Round(time.Millisecond))
	if n := len(servicetest.All(t, admin, events.Catalogue, events.DeadLetteredType)); n != 20 {
		t.Errorf("%d dead letters instead of 20", n)
	}
}

// ask sends a message to the intake once, and gives where its answer will come.
func ask(t *testing.T, u user, subject, body string) *nats.Subscription {
	t.Helper()
	inbox := u.NewInbox()
	sub, err := u.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{events.HeaderReply: {inbox}}}
	if err := u.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	if err := u.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	return sub
}

func answered(t *testing.T, sub *nats.Subscription) (answer events.IntakeAnswer) {
	t.Helper()
	msg, err := sub.NextMsg(5 * time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}
