package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/mill"
)

// scored waits until so many rollouts of a run have their reward.
func scored(ctx context.Context, log *eventlog.Log, run string, n int) error {
	errAll := errors.New("all are scored")
	filter := events.Event{Run: run, Type: events.RolloutScoredType, Entity: "*"}.Subject()
	err := log.Follow(ctx, run, 1, filter, func(events.Event) error {
		if n--; n == 0 {
			return errAll
		}
		return nil
	})
	if errors.Is(err, errAll) {
		return nil
	}
	return err
}

// BenchmarkReplicas takes the rollouts of the same run, which are all open at once, through one
// server and through three that each hold it. Servers are processes of this machine, which share
// its processors and its disk.
func BenchmarkReplicas(b *testing.B) {
	for _, always := range []bool{true, false} {
		for _, n := range []int{1, servers} {
			synced := "by the system"
			if always {
				synced = "always"
			}
			b.Run(fmt.Sprintf("servers=%d/synced=%s", n, synced), func(b *testing.B) {
				const steps = 200
				c := natstest.StartMembers(b, n, always)
				log := c.Log()
				ctx, stop := context.WithCancel(b.Context())
				work, ctx := errgroup.WithContext(ctx)
				p := &mill.Mill{Log: log, Dir: b.TempDir(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
				var runs []string
				for i := range b.N {
					runs = append(runs, fmt.Sprint("r", i))
				}
				work.Go(func() error { return p.Run(ctx, runs...) })
				defer func() {
					stop()
					if err := work.Wait(); err != nil && !errors.Is(err, context.Canceled) {
						b.Error(err)
					}
				}()
				took := time.Duration(0)
				for _, run := range runs {
					began := time.Now()
					if err := mill.Open(ctx, log, run, steps); err != nil {
						b.Fatal(err)
					}
					if err := scored(ctx, log, run, steps*mill.RolloutsPerStep); err != nil {
						b.Fatal(err)
					}
					took += time.Since(began)
				}
				b.ReportMetric(float64(b.N*steps*mill.RolloutsPerStep)/took.Seconds(), "rollouts/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
