//go:build ignore

// This program shows, without Rondo, that a replicated stream with S2 compression loses a block of messages when a server that syncs
// each write is killed and starts again. Run it from the repository: go run docs/upstream/compressed_replicas.go
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	serve    = flag.Int("serve", -1, "be the server of this number")
	dir      = flag.String("dir", "", "folder of the servers")
	always   = flag.Bool("always", true, "sync each write; else each two minutes")
	compress = flag.Bool("compress", true, "compress with S2")
	kills    = flag.Int("kills", 6, "how often a server is killed")
)

var base = flag.Int("port", 20000+rand.IntN(4000), "the first port of the servers")

func main() {
	flag.Parse()
	if *serve >= 0 {
		be(*serve)
	}
	if err := try(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// be is a server, until it is killed or its standard input ends.
func be(i int) {
	var routes []*url.URL
	for j := range 3 {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", *base+10+j)})
	}
	s, err := server.NewServer(&server.Options{
		ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: *base + i, NoSigs: true, JetStream: true, SyncAlways: *always,
		StoreDir: filepath.Join(*dir, fmt.Sprint("s", i)), LogFile: filepath.Join(*dir, fmt.Sprintf("s%d.log", i)),
		Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: *base + 10 + i}, Routes: routes,
	})
	if err != nil {
		panic(err)
	}
	s.ConfigureLogger()
	s.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func start(i int) *exec.Cmd {
	self, _ := os.Executable()
	c := exec.Command(self, fmt.Sprint("-serve=", i), "-dir="+*dir, fmt.Sprint("-always=", *always), fmt.Sprint("-port=", *base))
	c.Stderr = os.Stderr
	if _, err := c.StdinPipe(); err != nil {
		panic(err)
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
	return c
}

func try() (err error) {
	if *dir, err = os.MkdirTemp("", "replicas-"); err != nil {
		return err
	}
	defer os.RemoveAll(*dir)
	servers := []*exec.Cmd{start(0), start(1), start(2)}
	defer func() {
		for _, c := range servers {
			_ = c.Process.Kill()
		}
	}()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d,nats://127.0.0.1:%d,nats://127.0.0.1:%d", *base, *base+1, *base+2),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3}
	if *compress {
		cfg.Compression = jetstream.S2Compression
	}
	again := func(what string, f func(context.Context) error) {
		for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			err := f(ctx)
			cancel()
			if err == nil {
				return
			}
			if complain(); time.Since(began) > 2*time.Minute {
				fmt.Println(what, "not within 2 minutes:", err)
				os.Exit(1)
			}
		}
	}
	again("make the stream", func(ctx context.Context) error { _, err := js.CreateStream(ctx, cfg); return err })
	text := []byte(strings.Repeat("some words that compress well, ", 1000))
	for kill := range *kills {
		i := kill % 3
		killed := make(chan struct{})
		go func() { // while messages come
			defer close(killed)
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
			_ = servers[i].Process.Kill()
			_ = servers[i].Wait()
			servers[i] = start(i)
		}()
		for range 12 { // some three blocks of 8 MB
			again("publish", func(ctx context.Context) error {
				for range 64 {
					if _, err := js.PublishAsync(fmt.Sprint("s.", rand.IntN(100)), text); err != nil {
						return err
					}
				}
				select {
				case <-js.PublishAsyncComplete():
				case <-ctx.Done():
				}
				return nil
			})
		}
		<-killed
		again("replicas are current", func(ctx context.Context) error {
			s, err := js.Stream(ctx, "S")
			if err != nil {
				return err
			}
			c := s.CachedInfo().Cluster
			if c.Leader == "" || len(c.Replicas) != 2 || !c.Replicas[0].Current || !c.Replicas[1].Current {
				return fmt.Errorf("not yet")
			}
			return nil
		})
		fmt.Println("killed and started again: server", i)
		for leader := range 3 {
			again("lead", func(ctx context.Context) error {
				s, err := js.Stream(ctx, "S")
				if err != nil {
					return err
				}
				want := fmt.Sprint("s", leader)
				if s.CachedInfo().Cluster.Leader != want {
					_, _ = nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.S", []byte(`{"placement":{"preferred":"`+want+`"}}`))
					return fmt.Errorf("not yet")
				}
				c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true})
				if err != nil {
					return err
				}
				last, n := s.CachedInfo().State.LastSeq, uint64(0)
				for n < last {
					b, err := c.Fetch(int(min(500, last-n)), jetstream.FetchMaxWait(5*time.Second))
					if err != nil {
						return err
					}
					got := false
					for range b.Messages() {
						n++
						got = true
					}
					if !got {
						break
					}
				}
				if n != last {
					return fmt.Errorf("server %s has %d of %d messages", want, n, last)
				}
				return nil
			})
		}
		complain()
	}
	return nil
}

// complain ends the program when a server has written that its messages are corrupt.
func complain() {
	found := false
	for i := range 3 {
		log, _ := os.ReadFile(filepath.Join(*dir, fmt.Sprintf("s%d.log", i)))
		for line := range bytes.Lines(log) {
			if bytes.Contains(line, []byte("error reading compression reader")) {
				fmt.Printf("server %d: %s", i, line)
				found = true
			}
		}
	}
	if found {
		os.Exit(1)
	}
}
