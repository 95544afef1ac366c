package eventlog_test

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// wire is a TCP connection to the server that can swallow what travels over it.
type wire struct {
	listener net.Listener
	target   string
	// deaf swallows what the server says, mute what the client says.
	deaf, mute atomic.Bool
	swallowed  atomic.Int64 // bytes of the client
	mu         sync.Mutex
	conns      []net.Conn
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target}
	t.Cleanup(func() { l.Close(); w.cut() })
	go w.serve()
	return w
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		go w.carry(server, client, &w.mute, &w.swallowed)
		go w.carry(client, server, &w.deaf, new(atomic.Int64))
	}
}

func (w *wire) carry(to, from net.Conn, swallow *atomic.Bool, swallowed *atomic.Int64) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if swallow.Load() {
			swallowed.Add(int64(n))
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks all connections; new ones work.
func (w *wire) cut() {
	w.deaf.Store(false)
	w.mute.Store(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// wired is a log whose connection goes over a wire, and one that sees the server directly.
func wired(t *testing.T) (w *wire, remote, direct *eventlog.Log) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w = newWire(t, server.URL()[len("nats://"):])
	nc, err := nats.Connect("nats://"+w.listener.Addr().String(), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	store := natstest.Store(t)
	if remote, err = eventlog.New(nc, store); err != nil {
		t.Fatal(err)
	}
	if direct, err = eventlog.New(natstest.Connect(t, server), store); err != nil {
		t.Fatal(err)
	}
	if err := direct.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, remote, note(t, "g000009-0", "a", "before the first one a log looks how far the run is archived"))
	return w, remote, direct
}

// outcome of an append that runs beside the test.
type outcome struct {
	event   events.Event
	adopted bool
	err     error
}

func appendBeside(t *testing.T, log *eventlog.Log, e events.Event) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		stored, adopted, err := log.Appender.Append(t.Context(), e)
		done <- outcome{stored, adopted, err}
	}()
	return done
}

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	t.Run("it is on the log and the answer was lost", func(t *testing.T) {
		t.Parallel()
		w, remote, direct := wired(t)
		w.deaf.Store(true)
		done := appendBeside(t, remote, note(t, "g000001-0", "a", "mine"))
		natstest.Eventually(t, "the event is on the log", func() bool {
			_, err := direct.Last(t.Context(), run, "rollout", "g000001-0")
			return err == nil
		})
		w.cut()
		got := <-done
		if got.err != nil || got.event.Seq != 2 {
			t.Errorf("sequence %d, %v", got.event.Seq, got.err)
		}
		checkStream(t, direct, &acknowledged{events: map[uint64]events.Event{2: got.event}})
	})
	t.Run("it never arrived", func(t *testing.T) {
		t.Parallel()
		w, remote, direct := wired(t)
		w.mute.Store(true)
		done := appendBeside(t, remote, note(t, "g000001-0", "a", "mine"))
		natstest.Eventually(t, "the wire has swallowed it", func() bool { return w.swallowed.Load() > 200 })
		w.cut()
		got := <-done
		if got.err != nil || got.adopted || got.event.Seq != 2 {
			t.Errorf("sequence %d, adopted %v, %v", got.event.Seq, got.adopted, got.err)
		}
		if n := checkStream(t, direct, &acknowledged{events: map[uint64]events.Event{2: got.event}}); n != 2 {
			t.Errorf("%d events", n)
		}
	})
	t.Run("it never arrived and another one took the place", func(t *testing.T) {
		t.Parallel()
		w, remote, direct := wired(t)
		w.mute.Store(true)
		done := appendBeside(t, remote, note(t, "g000001-0", "a", "mine"))
		natstest.Eventually(t, "the wire has swallowed it", func() bool { return w.swallowed.Load() > 200 })
		winner := mustAppend(t, direct, note(t, "g000001-0", "b", "theirs"))
		w.cut()
		got := <-done
		var conflict *eventlog.Conflict
		if !errors.As(got.err, &conflict) || conflict.Winner.ID != winner.ID {
			t.Errorf("%v, want a conflict with %s", got.err, winner.ID)
		}
		if n := checkStream(t, direct, &acknowledged{}); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}
