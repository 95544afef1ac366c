package eventlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestPlacement: a run's stream lies on servers with the tag that the run names, or the run is not
// opened, and the error says why. A single server, which is in no cluster, holds every run.
func TestPlacement(t *testing.T) {
	cluster := natstest.Cluster(t, 3, func(i int, o *server.Options) {
		o.Tags.Add("region:eu")
		if i == 2 {
			o.Tags = nil
			o.Tags.Add("region:us")
		}
	})
	log := cluster.Log(t)
	for run, l := range map[string]runfile.Log{"alone": {Replicas: 1, Placement: "region:us"},
		"everywhere": {Replicas: 3}} {
		if err := log.Streams.EnsureRunFor(t.Context(), run, l); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "the stream lies where its run wants it",
		func() bool { return cluster.Leader(events.RunStream("alone")) == 2 })
	err := log.Streams.EnsureRunFor(t.Context(), "toomany", runfile.Log{Replicas: 3, Placement: "region:eu"})
	if !errors.Is(err, eventlog.ErrReplicas) || !strings.Contains(err.Error(), `3 with the tag "region:eu"`) {
		t.Errorf("three replicas on two servers: %v", err)
	}
	if err := natstest.Log(t).Streams.EnsureRunFor(t.Context(),
		"single", runfile.Log{Placement: "region:eu"}); err != nil {
		t.Errorf("a single server: %v", err)
	}
}
