package rollouts

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestSmallRunBesideLargeOnes: ten runs have 160 rollouts each under way. A run of eight rollouts comes to its batch while the log gets no more than twice the events that would be
// if it had an eleventh of them. It waits in each stage for the stage before, so it cannot use its whole part.
func TestSmallRunBesideLargeOnes(t *testing.T) {
	const large, least = 10, 2
	o, err := Options{Dir: t.TempDir()}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	err = withPlane(t.Context(), o, func(b *bench) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all, scored atomic.Int64
		counted, err := b.Log.Conn().Subscribe("rondo.v1.>", func(m *nats.Msg) {
			all.Add(1)
			if strings.HasSuffix(m.Subject, ".scored") {
				scored.Add(1)
			}
		})
		if err != nil {
			return err
		}
		defer func() { _ = counted.Unsubscribe() }()
		for range large {
			if _, err := b.start(ctx, shape{groupSize, 20 * groupSize, 12}); err != nil {
				return err
			}
		}
		natstest.Eventually(t, "all stages are at work", func() bool { return scored.Load() >= large })
		before, own := all.Load(), int64(0)
		run, err := b.start(ctx, shape{groupSize, groupSize, 12})
		if err != nil {
			return err
		}
		err = b.until(ctx, run, func(e events.Event) bool {
			own++
			return e.Type == events.BatchReadyType
		})
		n := all.Load() - before
		t.Logf("%d events of the small run, %d of all", own, n)
		if part := own * (large + 1) * least; err == nil && n > part {
			err = fmt.Errorf("the small run's %d events took %d of all, more than %d", own, n, part)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
