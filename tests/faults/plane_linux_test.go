package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/mill"
)

// orders are what a plane's process is told in its environment.
type orders struct {
	Dir    string
	Listen string
	Seed   uint64
	Life   uint64
	Faults []string // those that happen within the process
	Run    string
	Second bool // it serves the same run as the plane, and has no log of its own
}

const ordersVariable = "RONDO_TEST_FAULTS"

// TestPlane is no test of its own: it is the process that faults happen to.
func TestPlane(t *testing.T) {
	text := os.Getenv(ordersVariable)
	if text == "" {
		t.Skip("the process that TestFaults starts")
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the test is gone
		os.Exit(1)
	}()
	if err := live(t, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		retry.Sleep(context.Background(), again.Most)
		// as who supervises a plane starts it again, that began on a disk without writes
		t.Fatal(unix.Exec(os.Args[0], os.Args, os.Environ()))
	}
}

func (o orders) has(fault string) bool {
	for _, f := range o.Faults {
		if f == fault {
			return true
		}
	}
	return false
}

// live is a life of the plane, until it is killed.
func live(t *testing.T, o orders) error {
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	chance := &dice{rng: rand.New(rand.NewPCG(o.Seed, o.Life))}
	var store storage.Store
	store, err := dir.Open(filepath.Join(o.Dir, "objects"))
	if err != nil {
		return err
	}
	if o.has(faultOverload) {
		go giveBack()
	}
	if o.has(faultStore) {
		store = &faultyStore{store, chance}
	}
	if o.Second {
		return second(ctx, o, store, logger, chance)
	}
	server, err := embedded.Start(embedded.Options{Dir: filepath.Join(o.Dir, "nats"), Listen: o.Listen,
		Streams: eventlog.StreamSettings})
	if err != nil {
		return err
	}
	nc, line := natstest.ConnectOver(t, server)
	log, err := eventlog.New(nc, store, eventlog.Persisted(server.Persist))
	if err != nil {
		return err
	}
	monitor, err := health.New(health.Options{Log: log.Streams, Conn: nc, Logger: logger, Server: server,
		Disks: []string{o.Dir}})
	if err != nil {
		return err
	}
	go monitor.Run(ctx)
	if err := again.Keep(ctx, func() (bool, error) { err := log.Streams.Ensure(ctx); return err == nil, err },
		func(error, time.Duration) {}); err != nil {
		return err
	}
	if o.has(faultWire) {
		go cuts(ctx, line, chance)
	}
	if o.has(faultPause) && o.Life == 0 {
		retry.Sleep(ctx, 3*time.Second) // the second process is to decide first, as that one may stand still for long
	}
	return serve(ctx, o, &mill.Mill{Log: log, Dir: filepath.Join(o.Dir, "state"), Instance: "plane", Logger: logger},
		chance)
}

// giveBack returns memory that is not in use to the system again and again: what the process
// has is then what it keeps.
func giveBack() {
	for ; ; time.Sleep(time.Second) {
		debug.FreeOSMemory()
	}
}

// second is a life of the process beside the plane, which takes its share of the work.
func second(ctx context.Context, o orders, store storage.Store, logger *slog.Logger, chance *dice) error {
	nc, err := nats.Connect("nats://"+o.Listen, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	log, err := eventlog.New(nc, store)
	if err != nil {
		return err
	}
	return serve(ctx, o, &mill.Mill{Log: log, Dir: filepath.Join(o.Dir, "second"), Instance: "second", Logger: logger},
		chance)
}

// serve runs the services, again whenever they end.
func serve(ctx context.Context, o orders, p *mill.Mill, chance *dice) error {
	if o.has(faultRepeat) {
		p.Repeat = func(m pipeline.Message) bool { return m.Delivered < 3 && chance.one(2) }
	}
	return again.Keep(ctx, func() (bool, error) { return false, p.Run(ctx, o.Run) },
		func(err error, _ time.Duration) { p.Logger.Warn(p.Instance+" interrupted", "error", err) })
}

// cuts breaks the line to the log again and again.
func cuts(ctx context.Context, line *natstest.Line, chance *dice) {
	for retry.Sleep(ctx, chance.upTo(500*time.Millisecond)) {
		line.Cut()
		if !retry.Sleep(ctx, chance.upTo(200*time.Millisecond)) {
			return
		}
		line.Mend()
	}
}

// faultyStore is a store that is slow, fails, or fails when it has done what it was asked for: a
// request whose answer is lost.
type faultyStore struct {
	storage.Store
	chance *dice
}

var errStore = errors.New("the store fails by chance")

// try does something with a fault once in three times.
func (s *faultyStore) try(ctx context.Context, do func() error) error {
	switch {
	case s.chance.one(8):
		return storage.Unavailable(ctx, errStore)
	case s.chance.one(8):
		retry.Sleep(ctx, s.chance.upTo(300*time.Millisecond))
	case s.chance.one(8):
		if err := do(); err != nil {
			return err
		}
		return storage.Unavailable(ctx, fmt.Errorf("%w: %w", errStore, context.DeadlineExceeded))
	}
	return do()
}

func (s *faultyStore) Put(ctx context.Context, key string, data []byte) error {
	return s.try(ctx, func() error { return s.Store.Put(ctx, key, data) })
}

func (s *faultyStore) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return s.try(ctx, func() error { return s.Store.PutIfAbsent(ctx, key, data) })
}

func (s *faultyStore) PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error {
	return s.try(ctx, func() error { return s.Store.PutReaderIfAbsent(ctx, key, r, size) })
}

func (s *faultyStore) Get(ctx context.Context, key string) (data []byte, err error) {
	err = s.try(ctx, func() error { data, err = s.Store.Get(ctx, key); return err })
	return data, err
}

func (s *faultyStore) Stat(ctx context.Context, key string) (info storage.Info, err error) {
	err = s.try(ctx, func() error { info, err = s.Store.Stat(ctx, key); return err })
	return info, err
}
