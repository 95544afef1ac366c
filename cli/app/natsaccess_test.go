package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestNoSecretInConnectionErrors: whatever is wrong with a URL or with credentials, no error
// repeats what is secret in them.
func TestNoSecretInConnectionErrors(t *testing.T) {
	for _, url := range []string{
		"nats://rondo:hunter2@127.0.0.1:1", "nats://hunter2@127.0.0.1:1", "nats://rondo:hunter2@host:port",
		"nats://rondo:hun%ter2@127.0.0.1:1",
		"nats://rondo:hunter2@127.0.0.1:1,nats://rondo:hunter2@127.0.0.1:2", "rondo:hunter2@127.0.0.1:1",
		"nats://rondo:p@hunter2@[::1", "://rondo:hunter2@x",
	} {
		nc, err := nats.Connect(url, nats.Timeout(time.Second))
		if err == nil {
			nc.Close()
			t.Fatalf("%s answers", url)
		}
		for _, text := range []string{Redacted(url), WithoutSecrets(url, err).Error()} {
			if strings.Contains(text, "hunter2") || strings.Contains(text, "hun%ter2") {
				t.Errorf("%s", text)
			}
		}
	}
	broken := filepath.Join(t.TempDir(), "broken.creds")
	if err := os.WriteFile(broken,
		[]byte("-----BEGIN NATS USER JWT-----\nhunter2.hunter2.hunter2\n------END NATS USER JWT------\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, access := range []NATSAccess{{creds: broken}, {creds: broken + "-missing"},
		{ca: broken + "-missing"}, {cert: broken}} {
		if _, err := access.Options(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", access, err)
		}
	}
}
