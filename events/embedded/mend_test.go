package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// settings know the stream S alone.
func settings(name string) (jetstream.StreamConfig, bool) {
	return jetstream.StreamConfig{Name: name, Subjects: []string{"s.>"}, DenyDelete: true}, name == "S"
}

// ways are how a power cut leaves a file that was written and not synced.
var ways = map[string]func(name string) error{
	"missing": os.Remove,
	"empty":   func(name string) error { return os.Truncate(name, 0) },
	"zeroes": func(name string) error {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, make([]byte, info.Size()), 0o600)
	},
	"torn": func(name string) error {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, append(data[:len(data)/2], make([]byte, len(data)-len(data)/2)...), 0o600)
	},
}

// TestMend: a power cut leaves streams, and consumers, whose settings or whose state cannot be
// read. The streams that are known have their messages again, and consumers can be made again.
func TestMend(t *testing.T) {
	for way, damage := range ways {
		for _, damaged := range [][]string{
			{"meta.inf", "meta.sum"}, {"meta.inf"}, {"meta.sum"},
			{"obs/C/meta.inf", "obs/C/meta.sum"}, {"obs/C/meta.inf"}, {"obs/C/meta.sum"}, {"obs/C/o.dat"},
			{"meta.inf", "meta.sum", "obs/C/meta.inf", "obs/C/meta.sum", "obs/C/o.dat", "msgs/index.db"},
		} {
			t.Run(way+" "+filepath.Join(damaged...), func(t *testing.T) {
				dir := t.TempDir()
				whileUp(t, dir, func(js jetstream.JetStream) {
					cfg, _ := settings("S")
					fill(t, js, cfg)
					fill(t, js, jetstream.StreamConfig{Name: "FOREIGN", Subjects: []string{"f.>"}})
				})
				for _, stream := range []string{"S", "FOREIGN"} {
					for _, name := range damaged {
						if err := damage(filepath.Join(dir, "jetstream", "$G", "streams", stream, name)); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 2 { // and it stays so
					whileUp(t, dir, func(js jetstream.JetStream) {
						holds(t, js)
						_, err := js.Stream(t.Context(), "FOREIGN")
						if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
							t.Error(err)
						}
					})
				}
			})
		}
	}
}

// fill makes a stream with two messages, and a consumer that has acknowledged the first.
func fill(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
	t.Helper()
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if _, err := js.Publish(t.Context(), cfg.Subjects[0][:2]+text, bytes.Repeat([]byte(text), 100)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "C",
		AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next()
	if err == nil {
		err = m.DoubleAck(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holds: the stream has its messages and its settings, and its consumer delivers at least
// what was not acknowledged.
func holds(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if info := s.CachedInfo(); info.State.Msgs != 2 || info.State.LastSeq != 2 || !info.Config.DenyDelete {
		t.Errorf("%d messages until sequence %d, and %+v", info.State.Msgs, info.State.LastSeq, info.Config)
	}
	c, err := s.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "C",
		AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if waits := info.NumPending + uint64(info.NumAckPending); waits < 1 || waits > 2 {
		t.Errorf("%d messages wait", waits)
	}
}

// TestCompression: streams that are served at an interval, and may lose what replaces a full file,
// are not compressed any more.
func TestCompression(t *testing.T) {
	o := Options{Dir: t.TempDir(), Streams: settings}
	serving(t, o, func(js jetstream.JetStream) {
		cfg, _ := settings("S")
		cfg.Compression = jetstream.S2Compression
		fill(t, js, cfg)
	})
	o.SyncInterval = time.Hour
	serving(t, o, func(js jetstream.JetStream) {
		holds(t, js)
		s, err := js.Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		if cfg := s.CachedInfo().Config; cfg.Compression != jetstream.NoCompression {
			t.Errorf("the stream has %+v", cfg)
		}
	})
}
