package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/mill"
)

// TestClosedRunsCostNothing: a plane that has closed 60 runs holds what it held when it had closed
// 20. Some consumers and goroutines come and go: readers, and queues of the intake.
func TestClosedRunsCostNothing(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log, dir := natstest.Log(t), t.TempDir()
		startPlane(t, log, dir)
		policy := gc.DefaultPolicy()
		// nobody consumes the batches
		policy.Streams, policy.KeepStreams, policy.Unread = runfile.Duration(time.Minute), 5, 0
		var held []holds
		for n := range 60 {
			passRun(t, log, fmt.Sprintf("r%d", n))
			if n%20 != 19 {
				continue
			}
			time.Sleep(10 * time.Minute)
			consumers := look(t, log, dir).consumers // while the streams are there
			if _, err := gc.Retain(t.Context(), log, policy, &gc.Collector{}, true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			held = append(held, look(t, log, dir))
			held[len(held)-1].consumers = consumers
			t.Logf("%d closed runs: %+v", n+1, held[len(held)-1])
		}
		first, last := held[0], held[len(held)-1]
		if last.streams > first.streams || last.consumers > first.consumers+10 || last.files > first.files ||
			last.goroutines > first.goroutines+20 || last.heap > 2*first.heap {
			t.Errorf("60 closed runs hold %+v, and 20 held %+v", last, first)
		}
	})
}

// startPlane runs the services of a plane until the test ends.
func startPlane(t *testing.T, log *eventlog.Log, dir string) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	services := &mill.Mill{Log: log, Dir: dir, Instance: "a", Logger: logger}
	servicetest.Start(t, func(ctx context.Context) error {
		work, ctx := errgroup.WithContext(ctx)
		work.Go(func() error { return services.Run(ctx) })
		work.Go(func() error {
			return archiver.Run(ctx, pipeline.Env{Log: log, Dir: dir, Logger: logger, Instance: "a"})
		})
		return work.Wait()
	})
}

// passRun opens a run, and closes it with its first batch.
func passRun(t *testing.T, log *eventlog.Log, run string) {
	t.Helper()
	if err := mill.Open(t.Context(), log, run, 2); err != nil {
		t.Fatal(err)
	}
	servicetest.Wait(t, log, run, events.BatchReadyType, "trainer", 1)
	_, err := log.Submitter.Submit(t.Context(), eventlog.Submission{Run: run, Type: events.RunClosedType, Entity: run,
		Data: events.RunClosed{Reason: "enough"}, ID: "close"})
	if err != nil {
		t.Fatal(err)
	}
}

// holds is what a plane holds.
type holds struct {
	streams, consumers, files, goroutines int
	heap                                  uint64
}

func look(t *testing.T, log *eventlog.Log, dir string) (h holds) {
	t.Helper()
	streams := log.JetStream().ListStreams(t.Context())
	for s := range streams.Info() {
		h.streams++
		h.consumers += s.State.Consumers
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(filepath.Join(dir, "projections"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			h.files++
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.GC() // what was pooled before the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.heap, h.goroutines = m.HeapAlloc, runtime.NumGoroutine()
	return h
}
