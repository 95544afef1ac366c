package rollouts

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
)

// BenchmarkSmallRunBesideLargeOnes: ten runs have 160 rollouts each under way, and one of
// eight rollouts comes. It reports how many events of all runs the log gets until the
// batch of that run is ready.
func BenchmarkSmallRunBesideLargeOnes(b *testing.B) {
	for b.Loop() {
		own, all := besideLargeOnes(b)
		b.ReportMetric(float64(own), "own-events")
		b.ReportMetric(float64(all), "events")
	}
}

func besideLargeOnes(b *testing.B) (own, all int64) {
	const large = 10
	o, err := Options{Dir: b.TempDir()}.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	err = withPlane(b.Context(), o, func(p *bench) error {
		var seen, scored atomic.Int64
		counted, err := p.Log.Conn().Subscribe("rondo.v1.>", func(m *nats.Msg) {
			seen.Add(1)
			if strings.HasSuffix(m.Subject, ".scored") {
				scored.Add(1)
			}
		})
		if err != nil {
			return err
		}
		defer func() { _ = counted.Unsubscribe() }()
		for range large {
			if _, err := p.start(b.Context(), shape{groupSize, 20 * groupSize, 12}); err != nil {
				return err
			}
		}
		natstest.Eventually(b, "all stages are at work", func() bool { return scored.Load() >= large })
		before := seen.Load()
		run, err := p.start(b.Context(), shape{groupSize, groupSize, 12})
		if err != nil {
			return err
		}
		err = p.until(b.Context(), run, func(e events.Event) bool {
			own++
			return e.Type == events.BatchReadyType
		})
		all = seen.Load() - before
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return own, all
}
