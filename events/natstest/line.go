package natstest

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/embedded"
)

// Line is the wire between a connection and its server, for tests to cut.
type Line struct {
	server *embedded.Server
	mu     sync.Mutex
	down   bool
	ends   []net.Conn
}

// errDown: the line is cut.
var errDown = errors.New("the line is down")

// ConnectOver opens a connection whose line can be cut. It reconnects within milliseconds of its mending, and
// ends with the test.
func ConnectOver(t testing.TB, s *embedded.Server) (*nats.Conn, *Line) {
	t.Helper()
	line := &Line{server: s}
	nc, err := nats.Connect("", nats.InProcessServer(line), nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, line
}

// InProcessConn implements [nats.InProcessConnProvider].
func (l *Line) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	end, err := l.server.InProcessConn()
	if err == nil {
		l.ends = append(l.ends, end)
	}
	return end, err
}

// Cut breaks the connection, and keeps it broken until Mend.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, end := range l.ends {
		end.Close()
	}
	l.ends = nil
}

// Mend lets the client connect again.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}
