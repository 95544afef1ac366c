// Package natstest gives tests a real embedded server, log and store.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// Server starts a server that ends with the test.
func Server(t testing.TB) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: Folder(t), SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// Connect opens a connection that ends with the test.
func Connect(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Store is an empty store that ends with the test.
func Store(t testing.TB) storage.Store {
	t.Helper()
	return storeIn(t, Folder(t))
}

func storeIn(t testing.TB, folder string) storage.Store {
	t.Helper()
	store, err := dir.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// Log is a log with its fixed streams on a server of its own.
func Log(t testing.TB) *eventlog.Log {
	t.Helper()
	return logOver(t, Store(t))
}

// LogWithDisk is a log whose objects are on the disk, as there are gigabytes of them.
func LogWithDisk(t testing.TB) *eventlog.Log {
	t.Helper()
	return logOver(t, storeIn(t, t.TempDir()))
}

func logOver(t testing.TB, store storage.Store) *eventlog.Log {
	t.Helper()
	log, err := eventlog.New(Connect(t, Server(t)), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return log
}
