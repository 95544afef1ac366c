package natstest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Wire is a proxy on the loopback interface in front of a server. It can hold all bytes back, as a
// network does that drops packets: neither end is told. When it lets go, they go on.
type Wire struct {
	to       string
	listener net.Listener
	delay    time.Duration

	mu   sync.Mutex
	open *sync.Cond
	held bool
	ends map[net.Conn]struct{} // both of each connection
	done bool
}

// NewWire makes a wire to an address that ends with the test.
func NewWire(t testing.TB, to string) *Wire {
	t.Helper()
	return NewLongWire(t, to, 0)
}

// NewLongWire makes a wire on which each byte takes a while, in both directions,
// however many are under way.
func NewLongWire(t testing.TB, to string, delay time.Duration) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{to: to, listener: l, delay: delay, ends: map[net.Conn]struct{}{}}
	w.open = sync.NewCond(&w.mu)
	go w.accept()
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		w.done = true
		w.mu.Unlock()
		w.Release()
		w.Break()
	})
	return w
}

// Address is where clients of the server connect.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Hold holds all bytes back until Release.
func (w *Wire) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

// Release lets bytes go on.
func (w *Wire) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
	w.open.Broadcast()
}

// Break ends all connections.
func (w *Wire) Break() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := range w.ends {
		end.Close()
	}
	clear(w.ends)
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.serve(client)
	}
}

func (w *Wire) serve(client net.Conn) {
	defer client.Close()
	if !w.pass() {
		return
	}
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer server.Close()
	w.mu.Lock()
	over := w.done
	w.ends[client], w.ends[server] = struct{}{}, struct{}{}
	w.mu.Unlock()
	if over {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { w.carry(server, client) })
	both.Go(func() { w.carry(client, server) })
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ends, client)
	delete(w.ends, server)
}

// parcel is what was read at once, and when it arrives.
type parcel struct {
	bytes   []byte
	arrives time.Time
}

// onTheWay bounds the parcels of one direction: 256 of at most 32 KiB.
const onTheWay = 256

func (w *Wire) carry(to, from net.Conn) {
	way, gone := make(chan parcel, onTheWay), make(chan struct{})
	go func() {
		defer close(way)
		defer from.Close()
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case way <- parcel{buffer[:n], time.Now().Add(w.delay)}:
				case <-gone:
					return
				}
			}
			if err != nil {
				return // io.EOF, or the other end is closed
			}
		}
	}()
	defer close(gone)
	defer from.Close()
	defer to.Close()
	for p := range way {
		time.Sleep(time.Until(p.arrives))
		if !w.pass() {
			return
		}
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}

// pass waits while bytes are held back, and reports whether there is still a test.
func (w *Wire) pass() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.held && !w.done {
		w.open.Wait()
	}
	return !w.done
}
