package faults

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/mill"
)

// serving runs a mill until the test ends, again whenever it ends before.
func serving(t *testing.T, m *mill.Mill) {
	t.Helper()
	m.Dir, m.Logger = t.TempDir(), slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-ended
	})
	go func() {
		defer close(ended)
		_ = again.Keep(ctx, func() (bool, error) { return ctx.Err() != nil, m.Run(ctx, run) },
			func(error, time.Duration) {})
	}()
}

// patience is how much virtual time a run may take, and rest how much passes behind its
// end before it is judged.
const (
	patience = 12 * time.Hour
	rest     = 10 * time.Minute
)

// awaitEnd waits for the run's end.
func awaitEnd(t *testing.T, log *eventlog.Log) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Minute) {
		waits, err := mill.Ended(t.Context(), log, run)
		if err == nil && waits == "" {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("the run does not end: %s %v", waits, err)
		}
	}
	time.Sleep(rest)
}

// gate lets everybody pass, but not while it is shut.
type gate struct {
	mu   sync.Mutex
	turn *sync.Cond
	shut bool
}

func newGate() *gate {
	g := &gate{}
	g.turn = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.turn.Broadcast()
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut {
		g.turn.Wait()
	}
}

// gatedStore is the store as a process sees it that stands still while its gate is shut.
type gatedStore struct {
	storage.Store
	gate    *gate
	writing func(key string)
}

func (s *gatedStore) Put(ctx context.Context, key string, data []byte) error {
	s.writing(key)
	s.gate.pass()
	return s.Store.Put(ctx, key, data)
}

func (s *gatedStore) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	s.writing(key)
	s.gate.pass()
	return s.Store.PutIfAbsent(ctx, key, data)
}

func (s *gatedStore) PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error {
	s.writing(key)
	s.gate.pass()
	return s.Store.PutReaderIfAbsent(ctx, key, r, size)
}

func (s *gatedStore) Get(ctx context.Context, key string) ([]byte, error) {
	s.gate.pass()
	return s.Store.Get(ctx, key)
}

func (s *gatedStore) Stat(ctx context.Context, key string) (storage.Info, error) {
	s.gate.pass()
	return s.Store.Stat(ctx, key)
}
