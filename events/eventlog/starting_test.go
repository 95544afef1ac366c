package eventlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestStreamsOfAStartingServer: a server answers before its JetStream does. Who makes
// the streams waits for it.
func TestStreamsOfAStartingServer(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not get ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	log, err := eventlog.New(nc, natstest.Store(t))
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() { made <- log.Streams.Ensure(t.Context()) }()
	select {
	case err := <-made:
		t.Fatalf("without JetStream: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := s.EnableJetStream(&server.JetStreamConfig{StoreDir: t.TempDir(), MaxStore: 1 << 40,
		MaxMemory: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
}
