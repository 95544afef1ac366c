// Package embedded runs a NATS server with JetStream inside of the process: real, only small.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options of the server.
type Options struct {
	// Dir holds the streams.
	Dir string
	// Listen is host:port for other processes (port 0: any free one); "" serves this process alone.
	Listen string
	// SyncInterval is how much a power cut may lose; 0 syncs every message before it is acknowledged.
	SyncInterval time.Duration
}

// maxStore is what streams may reserve in sum. They reserve their limits, not what they use.
const maxStore = 1 << 50

// startTimeout bounds the recovery of the streams after a crash.
const startTimeout = 2 * time.Minute

// Server is a running server.
type Server struct{ server *server.Server }

// Start starts a server and waits until it is ready.
func Start(o Options) (*Server, error) {
	opts := &server.Options{
		ServerName: "rondo", JetStream: true, StoreDir: o.Dir, JetStreamMaxStore: maxStore,
		SyncAlways: o.SyncInterval == 0, SyncInterval: o.SyncInterval,
		NoLog: true, NoSigs: true, DontListen: o.Listen == "", MaxPayload: 8 << 20,
	}
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("listen address %q: %w", o.Listen, err)
		}
		opts.Host = host
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, fmt.Errorf("listen address %q: %w", o.Listen, err)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	if err := finishMeta(o.Dir); err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) || !s.JetStreamEnabled() {
		s.Shutdown()
		return nil, errors.New("the server did not get ready: is the directory writable?")
	}
	return &Server{server: s}, nil
}

// Connect opens a connection within the process.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append([]nats.Option{nats.InProcessServer(s), nats.MaxReconnects(-1)}, opts...)...)
}

// InProcessConn implements [nats.InProcessConnProvider].
func (s *Server) InProcessConn() (net.Conn, error) { return s.server.InProcessConn() }

// URL is where other processes connect.
func (s *Server) URL() string { return s.server.ClientURL() }

// Shutdown stops the server and waits until its files are closed.
func (s *Server) Shutdown() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}
