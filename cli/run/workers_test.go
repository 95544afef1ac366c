package run

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestUnserved: rollouts that wait for a worker which nobody has started are said, and none while a
// worker asks for work or has some.
func TestUnserved(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	want := func(says ...string) {
		t.Helper()
		got, err := unserved(t.Context(), log, "r")
		if err != nil || len(got) != len(says) {
			t.Fatalf("%q, %v; want %q", got, err, says)
		}
		for i := range says {
			if !strings.Contains(got[i], says[i]) {
				t.Errorf("%q, want %q", got[i], says[i])
			}
		}
	}
	servicetest.StartRollout(t, log, "r", "g000001-0", "a")
	want() // the run has no such workers
	var consumers []jetstream.Consumer
	for _, spec := range topology.ConsumersOf(topology.Environment) {
		c, err := log.Streams.EnsureConsumer(t.Context(), spec.For("r", ""), "")
		if err != nil {
			t.Fatal(err)
		}
		consumers = append(consumers, c)
	}
	want("no worker asks for work that begins them as their environment: 1 rollout waits")
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, "g000001-0",
		"0", events.RolloutFinished{Turns: 1}))
	want("as their environment", "no worker asks for work that rates them: 1 rollout waits")
	servicetest.StartRollout(t, log, "r", "g000001-1", "a")
	if _, err := consumers[0].Next(jetstream.FetchMaxWait(time.Minute)); err != nil { // a worker has it
		t.Fatal(err)
	}
	want("rates them") // the worker that has one takes the next
	if _, err := consumers[1].Next(jetstream.FetchMaxWait(time.Minute)); err != nil {
		t.Fatal(err)
	}
	want()
}
