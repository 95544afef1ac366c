package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/dir"
)

// benchRun is the run that a turn works on, and benchSpec the consumer: the scorer's,
// which has one input type.
const benchRun = "bench"

var benchSpec = topology.ConsumersOf(topology.Scorer)[0].For(benchRun, "")

// stage works until ctx ends, at most slots events at once, and tells the meter of each.
type stage func(ctx context.Context, log *eventlog.Log, slots int, m *meter) error

// turn runs a stage over n inputs on a server of its own.
func turn(ctx context.Context, o Options, durability time.Duration, n int, run stage) (cost Cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	err = withLog(ctx, o.Dir, durability, func(log *eventlog.Log) error {
		if err := prepare(ctx, log, n); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		runtime.GC() // a turn does not pay for the one before it
		cost, err = timed(ctx, log, o.Slots, n, run)
		return err
	})
	return cost, err
}

// turnTimeout ends a turn, which takes seconds, when something is stuck.
const turnTimeout = 5 * time.Minute

// withLog gives f an empty log on a server that lives as long as f runs.
func withLog(ctx context.Context, parent string, durability time.Duration, f func(*eventlog.Log) error) error {
	files, err := os.MkdirTemp(parent, "turn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	server, err := embedded.Start(embedded.Options{Dir: filepath.Join(files, "nats"), SyncInterval: durability})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	store, err := dir.Open(filepath.Join(files, "objects"))
	if err != nil {
		return err
	}
	defer store.Close()
	log, err := eventlog.New(nc, store)
	if err != nil {
		return err
	}
	if err := log.Streams.Ensure(ctx); err != nil {
		return err
	}
	return f(log)
}

// timed runs the stage until all inputs are done.
func timed(ctx context.Context, log *eventlog.Log, slots, n int, run stage) (cost Cost, err error) {
	m := &meter{want: int64(n), done: make(chan struct{})}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(working, log, slots, m) }()
	select {
	case err := <-ended:
		stop()
		return Cost{}, errors.Join(errShort, err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-m.done:
		if err = drained(ctx, log, n); err == nil {
			cost = m.cost()
		}
	}
	stop()
	return cost, errors.Join(err, <-ended)
}

// errShort: a turn ended without an output for every input, so its figures mean nothing.
var errShort = errors.New("not every event came out")

// prepare puts the inputs on the log.
func prepare(ctx context.Context, log *eventlog.Log, n int) error {
	if err := log.Streams.EnsureRun(ctx, benchRun); err != nil {
		return err
	}
	writers, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range 64 {
		writers.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if _, _, err := log.Appender.Append(ctx, newInput(i)); err != nil {
					return err
				}
			}
		})
	}
	return writers.Wait()
}

// drained waits until every input is acknowledged, and checks that each has its output.
func drained(ctx context.Context, log *eventlog.Log, n int) error {
	consumer, err := log.JetStream().Consumer(ctx, benchSpec.Stream, benchSpec.Name)
	if err != nil {
		return err
	}
	for {
		info, err := consumer.Info(ctx)
		if err != nil {
			return err
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			break
		}
		time.Sleep(200 * time.Microsecond)
	}
	in, err := log.Incarnation(ctx, benchRun)
	if err != nil {
		return err
	}
	if in.LastSeq != uint64(2*n) {
		return fmt.Errorf("%w: %d inputs, %d events on the log", errShort, n, in.LastSeq)
	}
	return nil
}

// meter counts events, and takes the time and what the process used from the first one on.
type meter struct {
	want    int64
	count   atomic.Int64
	start   sync.Once
	done    chan struct{}
	began   usage
	beganAt time.Time
}

// begin is called before each event.
func (m *meter) begin() {
	m.start.Do(func() { m.began, m.beganAt = readUsage(), time.Now() })
}

// end is called when an event was handled.
func (m *meter) end() {
	if m.count.Add(1) == m.want {
		close(m.done)
	}
}

// cost is what an event took until now.
func (m *meter) cost() Cost {
	took := time.Since(m.beganAt)
	used, n := readUsage(), float64(m.want)
	return Cost{
		EventsPerSecond: n / took.Seconds(),
		CPUMicroseconds: float64((used.cpu - m.began.cpu).Microseconds()) / n,
		Allocs:          float64(used.allocs-m.began.allocs) / n,
		AllocBytes:      float64(used.bytes-m.began.bytes) / n,
	}
}

// usage of the process since it began.
type usage struct {
	cpu           time.Duration
	allocs, bytes uint64
}

func readUsage() usage {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return usage{cpu: figures.ProcessorTime(), allocs: mem.Mallocs, bytes: mem.TotalAlloc}
}
