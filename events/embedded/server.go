// Package embedded runs a NATS server with JetStream inside of the process: real, only small.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/storage/durable"
)

// Options of the server.
type Options struct {
	// Dir holds the streams.
	Dir string
	// Listen is host:port for other processes (port 0: any free one); "" serves this process alone.
	Listen string
	// Token is what other processes must send to connect. "" lets every process of this machine in.
	Token string
	// SyncInterval is how much a power cut may lose; 0 syncs every message
	// before it is acknowledged.
	SyncInterval time.Duration
	// Streams are the settings of a stream by its name; false for a name that is unknown. A stream
	// whose own record of them was lost in a power cut is made again with these. nil knows none.
	Streams func(name string) (jetstream.StreamConfig, bool)
}

// maxStore is what streams may reserve in sum. They reserve their limits, not what they use.
const maxStore = 1 << 50

// startTimeout bounds the recovery of the streams after a crash.
const startTimeout = 2 * time.Minute

// Server is a running server.
type Server struct {
	options *server.Options
	mended  []string

	mu     sync.RWMutex
	server *server.Server // another one after each Restart
	down   bool           // for good
}

// Start starts a server and waits until it is ready.
func Start(o Options) (*Server, error) {
	if o.Streams == nil {
		o.Streams = func(string) (jetstream.StreamConfig, bool) { return jetstream.StreamConfig{}, false }
	}
	options, err := o.server()
	if err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, err
	}
	lost, err := begin(o.Dir, o.SyncInterval == 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s := &Server{options: options}
	if s.server, err = start(options); err != nil {
		return nil, err
	}
	if lost {
		if err := s.endAtGaps(ctx, o.Streams); err != nil {
			return nil, err
		}
	}
	if s.mended, err = s.mend(ctx, o); err != nil {
		s.stop()
		return nil, err
	}
	if addr, ok := s.server.Addr().(*net.TCPAddr); ok {
		options.Port = addr.Port // clients find it there again after a Restart
	}
	return s, nil
}

// endAtGaps starts the server once more where streams have gaps, behind which nothing of them
// counts. After an error no server runs.
func (s *Server) endAtGaps(ctx context.Context, streams func(string) (jetstream.StreamConfig, bool)) error {
	found, err := s.gaps(ctx, streams)
	if err == nil && len(found) == 0 {
		return nil
	}
	s.stop()
	for _, g := range found {
		err = errors.Join(err, g.end())
	}
	if err != nil {
		return err
	}
	s.server, err = start(s.options)
	return err
}

// server are the options of nats-server.
func (o Options) server() (*server.Options, error) {
	options := &server.Options{
		ServerName: "rondo", JetStream: true, StoreDir: o.Dir, JetStreamMaxStore: maxStore,
		SyncAlways: o.SyncInterval == 0, SyncInterval: o.SyncInterval,
		NoLog: true, NoSigs: true, DontListen: o.Listen == "", MaxPayload: 8 << 20, Authorization: o.Token,
	}
	if o.Listen == "" {
		return options, nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err == nil {
		options.Host = host
		options.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", o.Listen, err)
	}
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	return options, nil
}

// start starts a server over what a directory holds, and waits until it is ready.
func start(options *server.Options) (*server.Server, error) {
	if err := finishMeta(options.StoreDir); err != nil {
		return nil, err
	}
	s, err := server.NewServer(options.Clone())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s.Start()
	if !s.ReadyForConnections(startTimeout) || !s.JetStreamEnabled() {
		waited := time.Since(began)
		s.Shutdown()
		s.WaitForShutdown()
		return nil, notReady(waited, func() error { return tryWrite(options.StoreDir) })
	}
	return s, nil
}

// trialPatience is how long a write may take that tells why a server did not get ready.
const trialPatience = 10 * time.Second

// notReady says why a server did not get ready, as far as a write to its disk tells it:
// a slow disk is not full.
func notReady(waited time.Duration, write func() error) error {
	began, written := time.Now(), make(chan error, 1)
	go func() { written <- write() }()
	how := fmt.Sprintf("the embedded log did not get ready within %s", waited.Round(time.Second/10))
	select {
	case err := <-written:
		if err != nil {
			return fmt.Errorf("%s, and a write to its disk fails: %w", how, err)
		}
		return fmt.Errorf("%s. Its disk has room, and took a write in %s: see what else uses the disk and the processors of this machine",
			how, time.Since(began).Round(time.Millisecond))
	case <-time.After(trialPatience):
		return fmt.Errorf("%s. Its disk hangs or is very slow, and need not be full: a write has not ended for %s", how,
			trialPatience)
	}
}

// running is the server that runs now.
func (s *Server) running() *server.Server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.server
}

// SyncsLater reports whether messages are synced later than they are acknowledged.
func (s *Server) SyncsLater() bool { return !s.options.SyncAlways }

// Mended are the streams that a power cut had left without their settings, and that Start made
// again over their messages.
func (s *Server) Mended() []string { return s.mended }

// Connect opens a connection within the process.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	own := []nats.Option{nats.InProcessServer(s), nats.Token(s.options.Authorization), nats.MaxReconnects(-1)}
	return nats.Connect("", append(own, opts...)...)
}

// InProcessConn implements [nats.InProcessConnProvider].
func (s *Server) InProcessConn() (net.Conn, error) { return s.running().InProcessConn() }

// URL is where other processes connect, with the token: it is a secret.
func (s *Server) URL() string {
	url := s.running().ClientURL()
	if s.options.Authorization == "" {
		return url
	}
	return "nats://" + s.options.Authorization + "@" + strings.TrimPrefix(url, "nats://")
}

// Shutdown stops the server and waits until its files are closed and on the disk.
func (s *Server) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.stop()
	_ = end(s.options.StoreDir) // where it fails the mark stays, and the next start does it
}

func (s *Server) stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}
