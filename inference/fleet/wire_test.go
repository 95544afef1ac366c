package fleet

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/retry"
)

// wire is a farm's host "a" behind HTTP, on connections in memory: what the client's transport
// makes of resets, restarts and bodies that come slowly is its own, and the clock is the test's.
type wire struct {
	*farm
	transport *http.Transport
	dialled   chan net.Conn

	mu     sync.Mutex
	conns  map[net.Conn]bool
	down   bool
	came   map[string]int // answers that came whole, by their body
	resets int            // requests whose connection was reset
}

// newWire serves until the test ends.
func newWire(t *testing.T, f *farm) *wire {
	t.Helper()
	w := &wire{farm: f, dialled: make(chan net.Conn), conns: map[net.Conn]bool{}, came: map[string]int{}}
	w.transport = &http.Transport{DialContext: w.dial, MaxIdleConnsPerHost: pacedSlots}
	server := &http.Server{Handler: w, ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(w)
	t.Cleanup(func() {
		w.transport.CloseIdleConnections()
		server.Close()
	})
	return w
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errRefused
	}
	client, server := net.Pipe()
	select {
	case w.dialled <- server:
		w.conns[server] = true
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stop resets all connections and takes no more.
func (w *wire) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
	w.down = true
	clear(w.conns)
}

func (w *wire) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// Accept implements net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	if c, ok := <-w.dialled; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (w *wire) Close() error {
	close(w.dialled)
	return nil
}

// Addr implements net.Listener.
func (w *wire) Addr() net.Addr { return &net.UnixAddr{Name: "a", Net: "pipe"} }

// ServeHTTP says what the script has for the request.
func (w *wire) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		to.WriteHeader(http.StatusNotFound)
		return
	}
	io.Copy(io.Discard, r.Body)
	w.farm.mu.Lock()
	at, n := time.Since(w.began), len(w.asked["a"])
	w.asked["a"] = append(w.asked["a"], at)
	w.now["a"]++
	w.watch("a", w.now["a"], nil)
	w.farm.mu.Unlock()
	says := w.serve["a"](n, at)
	whole := retry.Sleep(r.Context(), says.takes) && says.err == nil && w.say(to, r, says)
	w.farm.mu.Lock()
	w.now["a"]--
	w.watch("a", w.now["a"], &says)
	w.farm.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !whole:
		w.resets++
		panic(http.ErrAbortHandler) // its connection ends
	case says.status == 0:
		w.came[says.body]++
	}
}

// say writes an answer, and reports whether all of it was read.
func (w *wire) say(to http.ResponseWriter, r *http.Request, says reply) bool {
	to.Header().Set("Content-Length", strconv.Itoa(len(says.body)))
	if says.status > 0 {
		to.WriteHeader(says.status)
	}
	step := len(says.body)
	if says.drips > 0 {
		step = 1
	}
	for sent := 0; sent < len(says.body); sent += step {
		if says.drips > 0 && !retry.Sleep(r.Context(), says.drips) {
			return false
		}
		if _, err := io.WriteString(to, says.body[sent:sent+step]); err != nil ||
			http.NewResponseController(to).Flush() != nil {
			return false
		}
	}
	return true
}

// countedAs is a counter by its second label.
func countedAs(t *testing.T, books *prometheus.Registry, name, label string) int {
	t.Helper()
	families, err := books.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && metric.GetLabel()[1].GetValue() == label {
				return int(metric.GetCounter().GetValue())
			}
		}
	}
	return 0
}
