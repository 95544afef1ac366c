package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestOutsiderAtTheIntake: a trainer states facts of its feed, is answered, reads its
// run, and does nothing else.
func TestOutsiderAtTheIntake(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	s := serve(t, dir, auth.ConfigFile)
	admin := adminLog(t, s, dir)
	cfg := servicetest.Config("fix")
	for _, name := range []string{run, "other"} {
		servicetest.OpenRun(t, admin, name, cfg)
	}
	intakeLog, err := eventlog.New(connect(t, s, creds(dir, topology.Intake)).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, intakeLog)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	// The server knows who is made while it runs.
	command(t, "auth", "user", "torch", "--out", dir, "--role", "trainer", "--run", run, "--feed",
		"main", "--policy", "small")
	command(t, "auth", "user", "operator", "--out", dir, "--role", "operator", "--run", run)
	operator, err := eventlog.New(connect(t, s, creds(dir, "operator")).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stated := eventlog.Submission{Run: run, Type: events.RunPausedType, Entity: run,
		Data: events.RunPaused{Reason: "lunch"}, ID: "pause-1"}
	answer, err := operator.Submitter.Submit(ctx, stated)
	if err != nil || answer.Sequence == 0 {
		t.Fatalf("%+v, %v", answer, err)
	}
	torch := connect(t, s, creds(dir, "torch"))
	log, err := eventlog.New(torch.Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	e, err := log.LastOfType(ctx, run, events.RunPausedType, run)
	if err != nil || e.Seq != answer.Sequence {
		t.Errorf("a trainer reads %+v, %v of its run", e, err)
	}
	for subject, want := range map[string]bool{
		"rondo.in.r.batch.main.consumed":              true,
		"rondo.in.r.batch.main.rewound":               true,
		"rondo.in._.weights.small.submitted":          true,
		"rondo.in.r.batch.second.consumed":            false,
		"rondo.in.other.batch.main.consumed":          false,
		"rondo.in._.weights.large.submitted":          false,
		"rondo.in.r.run.r.closed":                     false,
		"rondo.in.r.rollout.xg-0.scored":              false,
		"rondo.v1.r.batch.main.consumed":              false,
		"rondo.v1.r.rollout.g000001-0.scored":         false,
		"$JS.API.STREAM.MSG.GET.RONDO_r":              true,
		"$JS.API.STREAM.MSG.GET.RONDO_other":          false,
		"$JS.API.STREAM.MSG.GET.RONDO_IN":             false,
		"$JS.API.DIRECT.GET.RONDO_r":                  false,
		"$JS.API.STREAM.PURGE.RONDO_r":                false,
		"$JS.API.STREAM.DELETE.RONDO_r":               false,
		"$JS.API.CONSUMER.CREATE.RONDO_r.x":           false,
		"$JS.API.CONSUMER.CREATE.RONDO_r":             false,
		"$JS.API.CONSUMER.MSG.NEXT.RONDO_r.scorer-v1": false,
		"$JS.ACK.RONDO_r.scorer-v1.1.2.3.4.5":         false,
		"$KV.RONDO_LEASE.r.querysampler":              false,
		"_INBOX.outside.operator.x":                   false,
		"rondo.live.toolrunner.x":                     false,
	} {
		t.Run(subject, func(t *testing.T) {
			if got := torch.mayPublish(t, subject); got != want {
				t.Errorf("a trainer may publish %s: %v", subject, got)
			}
		})
	}
	for subject, want := range map[string]bool{
		"_INBOX.outside.torch.>": true, "_INBOX.outside.operator.>": false, "_INBOX.>": false,
		">": false, "rondo.v1.>": false,
		"rondo.v1.r.batch.main.ready": true, "rondo.v1.r.batch.second.ready": false,
		"rondo.v1.other.batch.main.ready": false,
		"rondo.in.>":                      false, "$SYS.>": false,
	} {
		t.Run(subject, func(t *testing.T) {
			if got := torch.maySubscribe(t, subject); got != want {
				t.Errorf("a trainer may hear %s: %v", subject, got)
			}
		})
	}
	answersGoNowhereElse(t, admin, torch)
	hears(t, admin, torch)
}

// answersGoNowhereElse asks the server, over subjects that a trainer may publish to, to put its
// answers onto the log and into the intake's stream.
func answersGoNowhereElse(t *testing.T, admin *eventlog.Log, torch user) {
	t.Helper()
	last := func(run string) uint64 {
		in, err := admin.Incarnation(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		return in.LastSeq
	}
	before := [2]uint64{last(run), last("other")}
	for _, asked := range []string{"$JS.API.STREAM.INFO.RONDO_r", "$JS.API.STREAM.MSG.GET.RONDO_r",
		"rondo.in.r.batch.main.consumed"} {
		for _, place := range []string{"rondo.v1.r.rollout.g000001-0.scored",
			"rondo.v1.other.rollout.g000001-0.scored"} {
			if err := torch.PublishRequest(asked, place, []byte(`{"seq":1}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := torch.Flush(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // answers would come by then; one that comes later lets the test pass wrongly, never fail
	if after := [2]uint64{last(run), last("other")}; after != before {
		t.Errorf("the server's answers stand on the log: %d before, %d after", before, after)
	}
}

// hears: a new batch of the feed wakes its trainer up.
func hears(t *testing.T, admin *eventlog.Log, torch user) {
	t.Helper()
	sub, err := torch.SubscribeSync("rondo.v1.r.batch.main.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := torch.Flush(); err != nil {
		t.Fatal(err)
	}
	servicetest.Append(t, admin, servicetest.Event(t, run, events.BatchReadyType, "main",
		"1", events.BatchReady{Step: 1}))
	if _, err := sub.NextMsg(time.Minute); err != nil {
		t.Errorf("a trainer does not hear of its batch: %v", err)
	}
}

// TestRevocation: a key that was rotated or revoked is worth nothing after the server's reload, and
// what has expired neither.
func TestRevocation(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	s := serve(t, dir, auth.ConfigFile)
	may := func(file string) bool {
		nc, err := nats.Connect(s.ClientURL(), nats.UserCredentials(file))
		if err == nil {
			nc.Close()
		}
		return err == nil
	}
	a, err := auth.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old.creds")
	copyFile(t, creds(dir, topology.Scorer), old)
	if !may(old) {
		t.Fatal("the scorer's first credentials are refused")
	}
	if err := a.Rotate(topology.Scorer); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if may(old) || !may(creds(dir, topology.Scorer)) || !may(creds(dir, topology.Generator)) {
		t.Errorf("after the rotation: old %v, new %v, another user %v", may(old), may(creds(dir, topology.Scorer)),
			may(creds(dir, topology.Generator)))
	}
	copyFile(t, creds(dir, topology.Scorer), old)
	if err := a.Revoke(topology.Scorer); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if may(old) {
		t.Error("revoked credentials are taken")
	}
	command(t, "auth", "init", "--out", dir)
	if u, err := a.User(topology.Scorer); err != nil || u.Revoked.IsZero() {
		t.Errorf("init brought a revoked user back: %+v, %v", u, err)
	}
	o := topology.Outsider{Name: "late", Role: topology.RoleProduct, Run: run}
	if _, err := a.Ensure(auth.User{Name: "late", Outsider: &o, Expires: time.Now().Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if may(a.Creds("late")) {
		t.Error("expired credentials are taken")
	}
}

// TestInitKeepsWhatExists: a second init changes no key, and list and show say who
// is who without a secret.
func TestInitKeepsWhatExists(t *testing.T) {
	t.Parallel()
	dir := initKeys(t, "--tls", "localhost", "--store-root")
	before := tree(t, dir)
	var made []struct{ Name, Outcome string }
	if err := json.Unmarshal([]byte(command(t, "auth", "init", "--out", dir, "--tls", "localhost", "--store-root",
		"--json")), &made); err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if m.Outcome != string(auth.OutcomeKept) {
			t.Errorf("%s was %s by a second init", m.Name, m.Outcome)
		}
	}
	after := tree(t, dir)
	for path, content := range before {
		if after[path] != content {
			t.Errorf("a second init changed %s", path)
		}
	}
	for path := range before {
		secret := strings.HasSuffix(path, ".nk") || strings.HasSuffix(path, ".creds") || strings.HasSuffix(path, ".key")
		want := fs.FileMode(0o600)
		// of servers that may be other users
		if strings.HasSuffix(path, "server.key") || strings.Contains(path, "/s3/root.") {
			secret, want = true, 0o640
		}
		if mode := modeOf(t, path); secret && mode != want {
			t.Errorf("%s has mode %o, want %o", path, mode, want)
		}
	}
	for _, name := range auth.Everybody() {
		if path := filepath.Join(dir, "users", name, "ca.crt"); before[path] == "" ||
			before[path] != before[filepath.Join(dir, auth.CAFile)] {
			t.Errorf("%s does not know whom to believe", name)
		}
	}
	said := command(t, "auth", "list", "--out", dir) + command(t, "auth", "show", topology.Generator) + fmt.Sprint(made)
	for path, content := range before {
		if strings.HasSuffix(path, ".nk") && strings.Contains(said, content) {
			t.Errorf("a command prints the seed of %s", path)
		}
	}
	if !strings.Contains(said, "rondo.v1.*.rollout.*.turn_sampled.*") || !strings.Contains(said, topology.DeadLetters) {
		t.Errorf("list and show say %s", said)
	}
}
