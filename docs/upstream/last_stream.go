//go:build ignore

// This program shows, without Rondo, that a stream may be refused that is made just after the account's last stream was deleted. Run it from
// the repository: go run docs/upstream/last_stream.go
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const tries = 20_000

func main() {
	if err := try(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d streams were made and deleted\n", tries)
}

func try() error {
	dir, err := os.MkdirTemp("", "last-stream")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the server did not get ready")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := range tries {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S"}); err != nil {
			return fmt.Errorf("try %d: make the stream: %w", i, err)
		}
		if err := js.DeleteStream(ctx, "S"); err != nil {
			return fmt.Errorf("try %d: delete the stream: %w", i, err)
		}
	}
	return nil
}
