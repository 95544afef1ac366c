package natstest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/embedded"
)

// HeldLine is the wire between a connection and its server. It can hold back all that is sent, for
// hours, and tells neither end. When it is released, what the client sent arrives, even if both
// ends have given the connection up.
type HeldLine struct {
	server *embedded.Server

	mu    sync.Mutex
	turn  *sync.Cond // of held and of bytes that came from the server
	held  bool
	at    []byte // the line is held when this is sent for the n-th time
	n     int
	began chan struct{} // closed when it is
	ends  []*heldEnd
}

// ConnectHeld opens a connection over a line of its own that ends with the test.
func ConnectHeld(t testing.TB, s *embedded.Server) (*nats.Conn, *HeldLine) {
	t.Helper()
	l := &HeldLine{server: s, began: make(chan struct{})}
	l.turn = sync.NewCond(&l.mu)
	nc, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		l.end()
	})
	return nc, l
}

// InProcessConn implements [nats.InProcessConnProvider].
func (l *HeldLine) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return nil, errDown
	}
	conn, err := l.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	e := &heldEnd{Conn: conn, line: l}
	l.ends = append(l.ends, e)
	go e.pump()
	return e, nil
}

// HoldAt holds the line from the n-th time on that the client sends a text, this time included.
func (l *HeldLine) HoldAt(text string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.n = []byte(text), n
}

// Hold holds the line from now on.
func (l *HeldLine) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold()
}

func (l *HeldLine) hold() {
	if !l.held {
		l.held = true
		close(l.began) // a line is held once
	}
}

// Began is closed when the line is held.
func (l *HeldLine) Began() <-chan struct{} { return l.began }

// Release lets all bytes go on that were held back, and counts those of the client.
func (l *HeldLine) Release() (late int, err error) {
	l.mu.Lock()
	l.held, l.at = false, nil
	l.turn.Broadcast()
	ends := l.ends
	l.mu.Unlock()
	for _, e := range ends {
		n, err := e.deliver()
		late += n
		if err != nil {
			return late, err
		}
	}
	return late, nil
}

func (l *HeldLine) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.turn.Broadcast()
	for _, e := range l.ends {
		e.Conn.Close()
		if e.fresh != nil {
			e.fresh.Close()
		}
	}
}

// heldEnd is the client's end of one connection.
type heldEnd struct {
	net.Conn
	line *HeldLine
	// The line's mu guards these.
	out    []byte // that the client has sent while the line was held
	in     []byte // that has come from the server
	closed bool   // by the client
	gone   bool   // the server has closed its end
	fresh  net.Conn
}

// pump takes what the server sends: it is on its way, and the server does not wait for it.
func (e *heldEnd) pump() {
	piece := make([]byte, 32<<10)
	for {
		n, err := e.Conn.Read(piece)
		e.line.mu.Lock()
		e.in = append(e.in, piece[:n]...)
		e.gone = err != nil
		e.line.turn.Broadcast()
		e.line.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (e *heldEnd) Read(into []byte) (int, error) {
	e.line.mu.Lock()
	defer e.line.mu.Unlock()
	for !e.closed && (e.line.held || len(e.in) == 0 && !e.gone) {
		e.line.turn.Wait()
	}
	if e.closed || len(e.in) == 0 {
		return 0, io.EOF
	}
	n := copy(into, e.in)
	e.in = e.in[n:]
	return n, nil
}

// Write sends whole messages: the client writes no part of one.
func (e *heldEnd) Write(data []byte) (int, error) {
	e.line.mu.Lock()
	if l := e.line; l.at != nil && bytes.Contains(data, l.at) {
		if l.n--; l.n == 0 {
			l.hold()
		}
	}
	if e.line.held || len(e.out) > 0 { // nothing overtakes what is held
		e.out = append(e.out, data...)
		e.line.mu.Unlock()
		return len(data), nil
	}
	e.line.mu.Unlock()
	return e.Conn.Write(data)
}

// Close ends the client's end. While the line is held, the server does not learn that.
func (e *heldEnd) Close() error {
	e.line.mu.Lock()
	defer e.line.mu.Unlock()
	e.closed = true
	e.line.turn.Broadcast()
	if e.line.held || len(e.out) > 0 {
		return nil
	}
	return e.Conn.Close()
}

// deliver brings what the client has sent to the server: over the connection, or over a new one
// where the server has ended it, as a relay does.
func (e *heldEnd) deliver() (late int, err error) {
	l := e.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(e.out) == 0 {
		return 0, nil
	}
	to := e.Conn
	if e.gone {
		if to, err = l.server.InProcessConn(); err != nil {
			return 0, err
		}
		e.fresh = to
		go func() { _, _ = io.Copy(io.Discard, to) }()
		e.out = append([]byte("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n"),
			e.out...)
	}
	for len(e.out) > 0 && err == nil {
		out := e.out
		l.mu.Unlock() // the server may have to send before it takes more
		_, err = to.Write(out)
		l.mu.Lock()
		late += len(out)
		e.out = e.out[len(out):]
	}
	return late, err
}
