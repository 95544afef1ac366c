package health_test

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
)

// TestServersOfAClusterAreAway: with one of three servers away the log is degraded, and works; with
// two away nobody leads it.
func TestServersOfAClusterAreAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	c := natstest.Cluster(t, 3)
	log := c.Log(t)
	natstest.Eventually(t, "the streams are made", func() bool { return log.Streams.Ensure(t.Context()) == nil })
	nc := connect(t, c.URL(0))
	w := watch(t, health.Options{}, nc, natstest.Store(t))
	w.eventually(health.LogDegraded, false)
	c.Stop(2)
	w.eventually(health.LogDegraded, true)
	for _, o := range w.monitor.Outages() {
		if o.Kind == health.LogDegraded &&
			(o.Of != events.CatalogueStream || !strings.Contains(o.Reason,
				"2 of 3 replicas are live, rondo-2 is away") || o.Stops()) {
			t.Errorf("a server is away: %s, and it stops the process: %v", o, o.Stops())
		}
	}
	within(t, w.append(1))
	c.Stop(1)
	w.eventually(health.LogUnreachable, true)
	for _, o := range w.monitor.Outages() {
		if o.Kind == health.LogUnreachable && (!strings.Contains(o.Reason, "leader") || !o.Stops()) {
			t.Errorf("nobody leads: %s", o)
		}
	}
	c.Start(t, 1)
	c.Start(t, 2)
	w.eventually(health.LogUnreachable, false)
	w.eventually(health.LogDegraded, false)
}
