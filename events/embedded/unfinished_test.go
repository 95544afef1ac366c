package embedded

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestKilledWhileMaking: a process was killed between the two files that describe
// a stream, or a consumer.
func TestKilledWhileMaking(t *testing.T) {
	for name, kill := range map[string]func(t *testing.T, dir string){
		"new": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, sumFile)); err != nil {
				t.Fatal(err)
			}
		},
		"changed": func(t *testing.T, dir string) {
			sum := filepath.Join(dir, sumFile)
			if err := os.WriteFile(sum, []byte("of the configuration before"), 0o600); err != nil {
				t.Fatal(err)
			}
			past := time.Now().Add(-time.Hour)
			if err := os.Chtimes(sum, past, past); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			whileUp(t, dir, func(js jetstream.JetStream) {
				s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "C"}); err != nil {
					t.Fatal(err)
				}
				if _, err := js.Publish(t.Context(), "s.1", []byte("kept")); err != nil {
					t.Fatal(err)
				}
			})
			stream := filepath.Join(dir, "jetstream", "$G", "streams", "S")
			kill(t, stream)
			kill(t, filepath.Join(stream, "obs", "C"))
			for range 2 { // and it stays so
				whileUp(t, dir, func(js jetstream.JetStream) {
					c, err := js.Consumer(t.Context(), "S", "C")
					if err != nil {
						t.Fatal(err)
					}
					if pending := c.CachedInfo().NumPending; pending != 1 {
						t.Errorf("%d messages", pending)
					}
				})
			}
		})
	}
}

// TestDamagedMeta: what the server refuses for good reasons stays refused, where nobody
// knows the stream's settings.
func TestDamagedMeta(t *testing.T) {
	dir := t.TempDir()
	whileUp(t, dir, func(js jetstream.JetStream) {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FOREIGN",
			Subjects: []string{"s.>"}}); err != nil {
			t.Fatal(err)
		}
	})
	meta := filepath.Join(dir, "jetstream", "$G", "streams", "FOREIGN", metaFile)
	config, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	config[len(config)/2] ^= 1
	if err := os.WriteFile(meta, config, 0o600); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(meta, past, past); err != nil {
		t.Fatal(err)
	}
	whileUp(t, dir, func(js jetstream.JetStream) {
		if _, err := js.Stream(t.Context(), "FOREIGN"); err == nil {
			t.Error("a damaged configuration serves")
		}
	})
}

func whileUp(t *testing.T, dir string, do func(jetstream.JetStream)) {
	t.Helper()
	serving(t, Options{Dir: dir, Streams: settings}, do)
}
