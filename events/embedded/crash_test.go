package embedded

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestAcknowledgedBeforeACrash: where messages are synced later than they are acknowledged, what a
// consumer made of a message may be lost though its acknowledgement is not. After a crash it is
// delivered all again; where every message is synced, only what waits.
func TestAcknowledgedBeforeACrash(t *testing.T) {
	for name, c := range map[string]struct {
		interval time.Duration
		waits    uint64
	}{"always": {0, 1}, "an interval": {time.Hour, 2}} {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), SyncInterval: c.interval, Streams: settings}
			crashed := t.TempDir()
			serving(t, o, func(js jetstream.JetStream) {
				cfg, _ := settings("S")
				fill(t, js, cfg)
				state := filepath.Join(o.Dir, "jetstream", "$G", "streams", "S", "obs", "C", "o.dat")
				for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
					// behind two bytes stands how many are acknowledged
					if data, err := os.ReadFile(state); err == nil && len(data) > 2 && data[2] == 1 {
						break
					}
					if time.Since(start) > time.Minute {
						t.Fatal("the consumer's state is not written")
					}
				}
				if err := os.CopyFS(crashed, os.DirFS(o.Dir)); err != nil {
					t.Fatal(err)
				}
			})
			o.Dir = crashed
			serving(t, o, func(js jetstream.JetStream) {
				consumer, err := js.Consumer(t.Context(), "S", "C")
				if err != nil {
					t.Fatal(err)
				}
				info := consumer.CachedInfo()
				if waits := info.NumPending + uint64(info.NumAckPending); waits != c.waits {
					t.Errorf("%d messages wait, want %d", waits, c.waits)
				}
			})
		})
	}
}

// TestIndexBeforeACrash: a stream's index counts a message that the power cut took. The next one
// has its sequence, without a gap.
func TestIndexBeforeACrash(t *testing.T) {
	dir := t.TempDir()
	whileUp(t, dir, func(js jetstream.JetStream) {
		cfg, _ := settings("S")
		fill(t, js, cfg)
	})
	block := filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk")
	info, err := os.Stat(block)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(block, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, uncleanFile), []byte(syncsLater), 0o600); err != nil {
		t.Fatal(err)
	}
	whileUp(t, dir, func(js jetstream.JetStream) {
		ack, err := js.Publish(t.Context(), "s.three", nil)
		if err != nil || ack.Sequence != 2 {
			t.Errorf("the message behind the first has sequence %+v, %v", ack, err)
		}
	})
}

func serving(t *testing.T, o Options, do func(jetstream.JetStream)) {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	do(js)
}
