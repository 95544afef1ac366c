package feed

import (
	"runtime"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
)

// BenchmarkPush is the push alone. It counts processor time, which says more than the clock where
// other work shares the cores.
func BenchmarkPush(b *testing.B) {
	for durability, interval := range map[string]time.Duration{"always": 0, "100ms": 100 * time.Millisecond} {
		b.Run(durability, func(b *testing.B) {
			const tokens, groups = 1024, 128
			err := withPlane(b.Context(), b.TempDir(), embedded.Options{SyncInterval: interval},
				1, func(p plane) error {
					texts, made, used := newContent(tokens), 0, time.Duration(0)
					for b.Loop() {
						b.StopTimer()
						rollouts := make([]*rollout, 0, groups*groupSize)
						for range groups {
							made++
							group := events.GroupID(int64(made))
							for i := range groupSize {
								r := &rollout{id: events.RolloutID(group, i), group: group}
								r.trajectory = texts.trajectory(run, group, r.id, tokens)
								rollouts = append(rollouts, r)
							}
						}
						if err := p.start(b.Context(), rollouts); err != nil {
							return err
						}
						runtime.GC()
						before := figures.ProcessorTime()
						b.StartTimer()
						if err := each(b.Context(), rollouts, p.push); err != nil {
							return err
						}
						used += figures.ProcessorTime() - before
					}
					b.ReportMetric(used.Seconds()*1e3/float64(made*groupSize), "CPU-ms/rollout")
					b.ReportMetric(float64(tokens*groups*groupSize*b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
					return nil
				})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
