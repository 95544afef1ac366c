package pipeline_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestAckFloorOfAStuckConsumer: a service whose handler never ends an input tells by the server's
// word that its consumer has work and does not move, and that it moves when it does.
func TestAckFloorOfAStuckConsumer(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		env, registry := servicetest.Env(t, log), prometheus.NewRegistry()
		env.Metrics = registry
		servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
		var well atomic.Bool
		servicetest.Start(t, func(ctx context.Context) error {
			return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Generator, Slots: 1,
				Handle: func(context.Context, pipeline.Message) ([]events.Event, error) {
					if !well.Load() {
						return nil, pipeline.RetryAfter(errors.New("not yet"), 10*time.Minute)
					}
					return nil, nil
				}})
		})
		value := func(name string) (sum float64) {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.Metric {
					for _, l := range m.Label {
						if f.GetName() == name && l.GetName() == "type" &&
							l.GetValue() == string(events.RolloutStartedType) {
							sum += m.GetGauge().GetValue()
						}
					}
				}
			}
			return sum
		}
		started := servicetest.StartRollout(t, log, "r", "g000001-0", "a")
		servicetest.StartRollout(t, log, "r", "g000001-1", "a")
		time.Sleep(time.Minute) // in virtual time
		if value("rondo_consumer_pending")+value("rondo_consumer_unacknowledged") != 2 ||
			value("rondo_consumer_ack_floor") >= float64(started.Seq) {
			t.Errorf("pending %g, unacknowledged %g, floor %g", value("rondo_consumer_pending"),
				value("rondo_consumer_unacknowledged"), value("rondo_consumer_ack_floor"))
		}
		well.Store(true)
		time.Sleep(15 * time.Minute)
		if value("rondo_consumer_pending")+value("rondo_consumer_unacknowledged") != 0 ||
			value("rondo_consumer_ack_floor") <= float64(started.Seq) {
			t.Errorf("pending %g, unacknowledged %g, floor %g", value("rondo_consumer_pending"),
				value("rondo_consumer_unacknowledged"), value("rondo_consumer_ack_floor"))
		}
	})
}
