//go:build ignore

// This program shows, without Rondo, that a work-queue stream keeps for ever a message that its only consumer has acknowledged when the disk refused
// to remove it. Run it from the repository: go run docs/upstream/settled_message.go
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const messages = 2

func main() {
	if err := try(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("the stream is empty")
}

func try() error {
	dir, err := os.MkdirTemp("", "settled-message")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = serve(dir, func(js jetstream.JetStream) error {
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Retention: jetstream.WorkQueuePolicy})
		if err != nil {
			return err
		}
		c, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			return err
		}
		for range messages {
			if _, err := js.Publish(ctx, "s", make([]byte, 1<<16)); err != nil {
				return err
			}
		}
		m, err := c.Next()
		if err != nil {
			return err
		}
		// The file of messages cannot grow, as on a disk that is full, and that of the consumer can.
		return limited(filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk"), func() error { return m.DoubleAck(ctx) })
	})
	if err != nil {
		return err
	}
	return serve(dir, func(js jetstream.JetStream) error { // the disk has room
		c, err := js.Consumer(ctx, "S", "C")
		if err != nil {
			return err
		}
		for range messages - 1 {
			m, err := c.Next()
			if err != nil {
				return err
			}
			if err := m.DoubleAck(ctx); err != nil {
				return err
			}
		}
		info, err := c.Info(ctx)
		if err != nil {
			return err
		}
		stream, err := js.Stream(ctx, "S")
		if err != nil {
			return err
		}
		if state := stream.CachedInfo().State; state.Msgs > 0 {
			return fmt.Errorf("the stream keeps %d message of sequence %d, and its only consumer has acknowledged all until sequence %d", state.Msgs, state.FirstSeq, info.AckFloor.Stream)
		}
		return nil
	})
}

// serve is a life of the server.
func serve(dir string, use func(jetstream.JetStream) error) error {
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true, NoLog: true, SyncAlways: true})
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
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
	return use(js)
}

// limited does something while no file grows beyond the size that one has.
func limited(file string, do func() error) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	during := before
	during.Cur = uint64(info.Size())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &during); err != nil {
		return err
	}
	doErr := do()
	time.Sleep(time.Second) // the acknowledgement is answered before the message is removed
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		return err
	}
	return doErr
}
