package plane

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/cli/app"
)

// TestStrangerCannotConnect: another user of the machine reaches the port of a
// plane, and nothing else.
func TestStrangerCannotConnect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plane")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(EndpointFile(dir), []byte("{}"), 0o666); err != nil { // of a plane that is gone
		t.Fatal(err)
	}
	for _, path := range []string{dir, EndpointFile(dir)} {
		if err := os.Chmod(path, 0o777); err != nil { // whatever the umask is
			t.Fatal(err)
		}
	}
	p, err := Hold(t.Context(), dir, HoldOptions{Listen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for path, want := range map[string]os.FileMode{dir: 0o700, EndpointFile(dir): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has the mode %o, want %o", path, info.Mode().Perm(), want)
		}
	}
	e, err := ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	bare := app.RedactedURL(e.NATS)
	for name, options := range map[string][]nats.Option{
		"no token": nil, "another token": {nats.Token(newToken())}, "a user": {nats.UserInfo("rondo", "rondo")},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := nats.Connect(bare, options...)
			if !errors.Is(err, nats.ErrAuthorization) {
				t.Errorf("%s: connected: %v", name, err)
			}
			if err == nil {
				conn.Close()
			}
		})
	}
	conn, err := nats.Connect(e.NATS)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if token, _, _ := strings.Cut(strings.TrimPrefix(e.NATS, "nats://"), "@"); len(token) != 64 ||
		strings.Contains(app.Redacted(e.NATS), token) {
		t.Errorf("the token has %d characters, and %s is shown", len(token), app.Redacted(e.NATS))
	}
}

// TestTokenIsNew: a plane that starts again has another token.
func TestTokenIsNew(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	for range 2 {
		p, err := Hold(t.Context(), dir, HoldOptions{Listen: true})
		if err != nil {
			t.Fatal(err)
		}
		var e endpoint
		text, err := os.ReadFile(EndpointFile(dir))
		if err != nil || json.Unmarshal(text, &e) != nil {
			t.Fatal(err)
		}
		token, _, _ := strings.Cut(strings.TrimPrefix(e.NATS, "nats://"), "@")
		if seen[token] {
			t.Error("the token of the plane before")
		}
		seen[token] = true
		p.Close()
	}
}

// TestGatewayKeyFile: a key that others could have read, or put there, is not used.
func TestGatewayKeyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.key")
	key, err := LastingToken(file)
	if err != nil || len(key) != 64 {
		t.Fatalf("%q, %v", key, err)
	}
	if again, err := LastingToken(file); err != nil || again != key {
		t.Errorf("the key has changed: %v", err)
	}
	for name, spoil := range map[string]func() error{
		"readable": func() error { return os.Chmod(file, 0o644) },
		"short":    func() error { return os.WriteFile(file, []byte("short\n"), 0o600) },
		"a link": func() error {
			return errors.Join(os.WriteFile(file+".other", []byte(key), 0o600), os.Remove(file),
				os.Symlink(file+".other", file))
		},
		"a pipe": func() error { return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(file)
			if _, err := LastingToken(file); err != nil {
				t.Fatal(err)
			}
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if _, err := LastingToken(file); err == nil || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("the key is used: %v", err)
			}
		})
	}
}
