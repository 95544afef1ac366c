package eventlog_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestFollowNoticesARollback: the server comes back with an older copy of its disk. Who has read
// more than that has is told, also when the stream has grown again before the reader is connected.
func TestFollowNoticesARollback(t *testing.T) {
	t.Parallel()
	for name, after := range map[string][]string{"shorter": nil, "as long": {"x", "y"}, "longer": {"x", "y", "z"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listen := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
			dir, older := t.TempDir(), t.TempDir()
			store := natstest.Store(t)
			var server *embedded.Server
			start := func(dir string) (*eventlog.Log, func()) {
				var err error
				if server, err = embedded.Start(embedded.Options{Dir: dir, Listen: listen,
					SyncInterval: time.Minute}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(server.Shutdown)
				nc, err := server.Connect()
				if err != nil {
					t.Fatal(err)
				}
				log, err := eventlog.New(nc, store)
				if err == nil {
					err = log.Streams.EnsureRun(t.Context(), run)
				}
				if err != nil {
					t.Fatal(err)
				}
				return log, func() { nc.Close(); server.Shutdown() }
			}
			log, stop := start(dir)
			chain(t, log, "g000001-0", "a", "b", "c")
			stop()
			if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			log, stop = start(dir)
			chain(t, log, "g000002-0", "d", "e")
			wire := natstest.NewWire(t, listen)
			nc, err := nats.Connect("nats://"+wire.Address(), nats.MaxReconnects(-1),
				nats.ReconnectWait(10*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			reader, err := eventlog.New(nc, store)
			if err != nil {
				t.Fatal(err)
			}
			out, done := follow(t.Context(), reader, 1, "")
			expectSequences(t, out, 1, 5)
			wire.Hold()
			stop()
			log, stop = start(older)
			defer stop()
			if len(after) > 0 {
				chain(t, log, "g000003-0", after...)
			}
			wire.Break()
			wire.Release()
			select {
			case err = <-done:
			case e := <-out:
				t.Fatalf("it reads on with %s at %d", e.ID, e.Seq)
			case <-time.After(time.Minute):
				t.Fatal("it waits")
			}
			if !errors.Is(err, eventlog.ErrReplaced) {
				t.Errorf("following ended with %v", err)
			}
		})
	}
}
