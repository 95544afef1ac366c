package power

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestFullBlocksAreCut: a stream fills one file after the other, and the power is cut around the
// moments in which the server goes on to the next one. What is left has no gap, and ends no earlier
// than the durability says.
func TestFullBlocksAreCut(t *testing.T) {
	t.Parallel()
	const interval = 100 * time.Millisecond
	mount, disk := t.TempDir(), forgetful.NewDisk()
	unmount, err := forgetful.Mount(disk, mount)
	if err != nil {
		program.Missing(t, "%v", err)
	}
	defer func() { _ = unmount() }()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	const run = "RONDO_r"
	at := map[uint64]time.Time{}
	type cut struct {
		disk *forgetful.Disk
		at   time.Time
		last uint64
	}
	var cuts []cut
	onDisk(t, mount, interval, func(server *embedded.Server, js jetstream.JetStream) {
		cfg, _ := eventlog.StreamSettings(run)
		cfg.Compression = jetstream.NoCompression // as [eventlog.Uncompressed] has it
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if err := server.Persist(run); err != nil {
			t.Fatal(err)
		}
		// A file holds 8 MiB. Text of words is compressed where that is asked for.
		body := bytes.Repeat([]byte("what a model said, "), 5000)
		for files := 1; files < 4; {
			ack, err := js.Publish(t.Context(), "rondo.v1.r.x", body)
			if err != nil {
				t.Fatal(err)
			}
			at[ack.Sequence] = time.Now()
			if ack.Sequence == 50 { // more than half a file is old when it is full
				time.Sleep(interval + slack)
			}
			if now := len(disk.Files("plane/nats/jetstream/*/streams/" + run + "/msgs/*.blk")); now > files {
				files = now
				for range 3 {
					cuts = append(cuts, cut{disk.Cut(chance), time.Now(), ack.Sequence})
					time.Sleep(time.Duration(chance.Int64N(int64(interval) / 4)))
				}
			}
		}
	})
	for i, c := range cuts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			mount := t.TempDir()
			unmount, err := forgetful.Mount(c.disk, mount)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unmount() }()
			onDisk(t, mount, interval, func(_ *embedded.Server, js jetstream.JetStream) {
				s, err := js.Stream(t.Context(), run)
				if err != nil {
					t.Fatal(err)
				}
				state := s.CachedInfo().State
				if state.NumDeleted > 0 || state.Msgs != state.LastSeq {
					t.Errorf("%d of the messages until sequence %d are there: %d are gaps", state.Msgs,
						state.LastSeq, state.NumDeleted)
				}
				if next := state.LastSeq + 1; next <= c.last && c.at.Sub(at[next]) > interval+slack {
					t.Errorf("message %d was answered %s before the cut, and is lost", next, c.at.Sub(at[next]))
				}
			})
		})
	}
}

// onDisk serves a plane's log on a mounted disk while do runs.
func onDisk(t *testing.T, mount string, interval time.Duration, do func(*embedded.Server, jetstream.JetStream)) {
	t.Helper()
	folder := filepath.Join(mount, "plane")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(embedded.Options{Dir: filepath.Join(folder, "nats"), SyncInterval: interval,
		Streams: eventlog.StreamSettings})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	do(server, js)
}
