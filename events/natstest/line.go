package natstest

import (
	"bytes"
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
	loses  string // an answer that holds this does not arrive
	times  int
}

// errDown: the line is cut.
var errDown = errors.New("the line is down")

// ConnectOver opens a connection whose line can be cut. It reconnects within milliseconds of its
// mending, and ends with the test.
func ConnectOver(t testing.TB, s *embedded.Server) (*nats.Conn, *Line) {
	t.Helper()
	line := &Line{server: s}
	nc, err := nats.Connect("", nats.InProcessServer(line), nats.MaxReconnects(-1),
		nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))
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
		end = &lossy{end, l}
		l.ends = append(l.ends, end)
	}
	return end, err
}

// Lose breaks the connection, so many times, where the server answers with a text: it has done what
// it was asked for, and the client does not learn that.
func (l *Line) Lose(text string, times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loses, l.times = text, times
}

// Left is how many more answers will be lost.
func (l *Line) Left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.times
}

// takes reports whether what comes from the server is lost on the way.
func (l *Line) takes(data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == 0 || !bytes.Contains(data, []byte(l.loses)) {
		return false
	}
	l.times--
	return true
}

// lossy is the client's end of a line.
type lossy struct {
	net.Conn
	line *Line
}

func (c *lossy) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 && c.line.takes(into[:n]) {
		c.Close()
		return 0, errDown
	}
	return n, err
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
