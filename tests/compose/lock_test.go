package compose_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/s3"
)

// keysOf takes a user's keys along, as somebody outside of the containers does.
func (s *stack) keysOf(user string) (dir string) {
	s.t.Helper()
	dir = filepath.Join(s.t.TempDir(), user)
	s.compose("cp", "keys:/auth/users/"+user, dir)
	return dir
}

// connect reaches the log from outside of the containers; refused is told what
// the server does not allow.
func (s *stack) connect(keys string) (nc *nats.Conn, refused chan error) {
	s.t.Helper()
	creds := filepath.Join(keys, "nats.creds")
	prefix, err := auth.InboxPrefix(creds)
	if err != nil {
		s.t.Fatal(err)
	}
	refused = make(chan error, 100)
	nc, err = nats.Connect(s.log, nats.UserCredentials(creds), nats.RootCAs(filepath.Join(keys, "ca.crt")),
		nats.CustomInboxPrefix(prefix),
		nats.Timeout(30*time.Second), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription,
			err error) {
			refused <- err
		}))
	if err != nil {
		s.t.Fatalf("with the keys in %s: %v", keys, err)
	}
	s.t.Cleanup(nc.Close)
	return nc, refused
}

// bucket is the store, seen from outside of the containers.
func bucket(access, secret string) s3.Config {
	return s3.Config{Endpoint: "http://" + publish + ":7070", Bucket: "rondo", AccessKey: access, SecretKey: secret}
}

// locked: with the keys of one service, or of an outsider, nobody does another's part, and
// without any nothing at all.
func (s *stack) locked() {
	s.t.Helper()
	// As the head of compose.yaml says.
	s.compose("run", "--rm", "--no-TTY", "keys", "auth", "user", "torch", "--role", "trainer", "--run", run, "--feed",
		"trainer", "--policy", "my-model")
	s.compose("run", "--rm", "--no-TTY", "access")
	info := "$JS.API.STREAM.INFO." + events.RunStream(run)
	for user, others := range map[string]struct{ subjects, keys []string }{
		topology.Generator: {
			[]string{"rondo.v1." + run + ".batch.trainer.ready", "rondo.v1." + run + ".rollout.none-0.scored",
				"rondo.in." + run + ".run." + run + ".closed", "$JS.API.STREAM.DELETE." + events.RunStream(run)},
			[]string{"runs/" + run + "/batches/trainer/of-the-test", "weights/my-model/of-the-test", "of-the-test"},
		},
		"torch": {
			[]string{"rondo.v1." + run + ".batch.trainer.consumed", "rondo.in." + run + ".batch.other.consumed",
				"rondo.in.other.batch.trainer.consumed", "$JS.API.STREAM.PURGE." + events.RunStream(run)},
			[]string{"runs/" + run + "/batches/trainer/of-the-test", "runs/" + run + "/trajectories/of-the-test"},
		},
	} {
		dir := s.keysOf(user)
		nc, refused := s.connect(dir)
		if _, err := nc.Request(info, nil, 30*time.Second); err != nil {
			s.t.Errorf("%s cannot look at the run: %v", user, err)
		}
		for _, subject := range others.subjects {
			if err := errors.Join(nc.Publish(subject, []byte("{}")), nc.FlushTimeout(30*time.Second)); err != nil {
				s.t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
					s.t.Errorf("%s on %s: %v", user, subject, err)
				}
			case <-time.After(30 * time.Second):
				s.t.Errorf("%s is not refused on %s", user, subject)
			}
		}
		store, err := s3.Open(s.t.Context(), bucket(read(s.t, dir, "s3.access"), read(s.t, dir, "s3.secret")))
		if err != nil {
			s.t.Fatalf("%s at the store: %v", user, err)
		}
		for _, key := range others.keys {
			if err := store.Put(s.t.Context(), key, []byte("{}")); err == nil ||
				!strings.Contains(err.Error(), "AccessDenied") {
				s.t.Errorf("%s writes %s: %v", user, key, err)
			}
		}
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	}
	s.strangers()
	if seen := s.compose("exec", "--no-TTY", topology.Generator, "busybox", "find", "/keys", "/auth", "-type",
		"f"); strings.Contains(seen, ".nk") ||
		strings.Count(seen, "\n") != 5 || !strings.Contains(seen, "/keys/nats.creds") {
		s.t.Errorf("the generator sees the files\n%s", seen)
	}
}

// strangers have no keys, or those that everybody knows.
func (s *stack) strangers() {
	s.t.Helper()
	ca := filepath.Join(s.keysOf(topology.Admin), "ca.crt")
	for _, options := range [][]nats.Option{nil, {nats.UserInfo("rondo", "change-me-log")}} {
		if nc, err := nats.Connect(s.log, append(options, nats.RootCAs(ca),
			nats.Timeout(30*time.Second))...); err == nil {
			nc.Close()
			s.t.Errorf("the log lets strangers in")
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for _, access := range []string{"rondo", "root"} {
		if store, err := s3.Open(ctx, bucket(access, "change-me-store")); err == nil {
			store.Close()
			s.t.Errorf("the store lets strangers in")
		}
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
