// Package auth locks a plane with the credentials that `rondo auth` makes, and tries everything
// that they must not permit.
package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/open"
	"github.com/rondo-rl/rondo/tests/program"
)

// rondo is the binary under test.
var rondo string

func TestMain(m *testing.M) { program.Main(m, &rondo) }

// initKeys makes keys as an operator does.
func initKeys(t *testing.T, args ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "auth")
	command(t, append([]string{"auth", "init", "--out", dir}, args...)...)
	return dir
}

// command runs rondo to its end, and gives what it printed.
func command(t *testing.T, args ...string) string {
	t.Helper()
	return commandWith(t, nil, args...)
}

// commandWith runs rondo with more variables in its environment.
func commandWith(t *testing.T, env []string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), rondo, args...)
	c.Env = append(c.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("rondo %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func creds(dir, user string) string { return filepath.Join(dir, "users", user, "nats.creds") }

// serve starts a server on a configuration that includes files of the keys' directory,
// as deploy/nats.conf does.
func serve(t *testing.T, dir string, includes ...string) *server.Server {
	t.Helper()
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nserver_name: locked\nmax_payload: 8MB\njetstream { store_dir: %q, max_file_store: 1TB, sync_interval: \"1m\" }\n", t.TempDir())
	for _, name := range includes {
		target := filepath.Join(dir, name)
		text += fmt.Sprintf("include %q\n", "./"+filepath.Base(target))
		// An include is relative to the file that has it.
		if err := os.Symlink(target, filepath.Join(dir, filepath.Base(target))); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	options.NoLog, options.NoSigs = true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not get ready")
	}
	return s
}

// user is a connection as somebody.
type user struct{ *nats.Conn }

func connect(t *testing.T, s *server.Server, file string, options ...nats.Option) user {
	t.Helper()
	prefix, err := auth.InboxPrefix(file)
	if err != nil {
		t.Fatal(err)
	}
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) // the library would print
	nc, err := nats.Connect(s.ClientURL(), append(options, nats.UserCredentials(file),
		nats.CustomInboxPrefix(prefix), quiet)...)
	if err != nil {
		t.Fatalf("connect with %s: %v", file, err)
	}
	t.Cleanup(nc.Close)
	return user{nc}
}

// may does something, and reports whether the server let it.
func (u user) may(t *testing.T, do func() error) bool {
	t.Helper()
	before := u.LastError()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	if err := u.FlushTimeout(time.Minute); err != nil { // what the server refuses it says before it answers this
		t.Fatal(err)
	}
	after := u.LastError()
	if !errors.Is(after, before) && !errors.Is(after, nats.ErrPermissionViolation) {
		t.Fatal(after)
	}
	return errors.Is(after, before)
}

func (u user) mayPublish(t *testing.T, subject string) bool {
	t.Helper()
	return u.may(t, func() error { return u.Publish(subject, []byte("{}")) })
}

func (u user) maySubscribe(t *testing.T, subject string) bool {
	t.Helper()
	var sub *nats.Subscription
	defer func() { sub.Unsubscribe() }()
	return u.may(t, func() (err error) {
		sub, err = u.SubscribeSync(subject)
		return err
	})
}

func rootCA(file string) nats.Option { return nats.RootCAs(file) }

// adminLog is the log as the command line has it, with its streams.
func adminLog(t *testing.T, s *server.Server, dir string) *eventlog.Log {
	t.Helper()
	return adminLogIn(t, s, dir, t.TempDir(), "")
}

func adminLogIn(t *testing.T, s *server.Server, dir, objects, ca string) *eventlog.Log {
	t.Helper()
	store, err := open.Open(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	var options []nats.Option
	if ca != "" {
		options = append(options, rootCA(ca))
	}
	log, err := eventlog.New(connect(t, s, creds(dir, topology.Admin), options...).Conn, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return log
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tree is what a directory holds, by path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
