package deploy_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/dir"
)

// TestNATSConfiguration starts a server from deploy/nats.conf with keys beside it, elsewhere on disk and on another port, and makes
// Rondo's streams on it.
func TestNATSConfiguration(t *testing.T) {
	folder := t.TempDir()
	text, err := os.ReadFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "nats.conf"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(folder, "auth")
	a, err := auth.Init(keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := auth.EnsureTLS(keys, []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ensure(auth.User{Name: topology.Intake, Services: []string{topology.Intake}}); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(filepath.Join(folder, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if !options.SyncAlways || options.StoreDir != "/data" || options.Port != 4222 || options.HTTPPort != 8222 {
		t.Errorf("sync always %v, store %s, ports %d and %d", options.SyncAlways, options.StoreDir, options.Port, options.HTTPPort)
	}
	options.StoreDir, options.Host, options.Port, options.HTTPPort = t.TempDir(), "127.0.0.1", server.RANDOM_PORT, 0
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
	folder = filepath.Dir(a.Creds(topology.Intake))
	believes := nats.RootCAs(filepath.Join(folder, "ca.crt"))
	if _, err := nats.Connect(s.ClientURL(), believes); err == nil {
		t.Error("it lets strangers in")
	}
	conn, err := nats.Connect(s.ClientURL(), believes, nats.UserCredentials(a.Creds(topology.Intake)), nats.CustomInboxPrefix(topology.ServiceInbox(topology.Intake)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log, err := eventlog.New(conn, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.EnsureStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Streams reserve their limits: many runs must fit.
	for _, run := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		if err := log.EnsureRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}
