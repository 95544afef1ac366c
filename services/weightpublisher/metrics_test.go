package weightpublisher

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestMetrics: versions and bytes are counted once, also where a run is told of them.
func TestMetrics(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	env, registry := servicetest.Env(t, log), prometheus.NewRegistry()
	env.Metrics = registry
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env) })
	size := 0
	for version := int64(1); version <= 3; version++ {
		data := safetensors(float32(version), 2)
		size += len(data)
		submit(t, log, "small", fmt.Sprint(version), version, file(t, log, "model.safetensors", data))
		// an older version beside a newer one may come too late
		servicetest.Wait(t, log, events.Catalogue, events.WeightsPublishedType, "small", int(version))
	}
	submit(t, log, "small", "broken", 4, file(t, log, "model.safetensors", []byte("none")))
	want := map[string]float64{"published": 3, "rejected": 1, "files": float64(size)}
	got := map[string]float64{}
	natstest.Eventually(t, "all are counted", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if name := family.GetName(); name != "rondo_weights_versions_total" && name != "rondo_weights_bytes_total" {
				continue
			}
			for _, m := range family.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
		return got["published"]+got["rejected"] >= 4
	})
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
