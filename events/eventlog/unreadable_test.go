package eventlog_test

import (
	"errors"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// A foreign writer's message is seen by who reads the stream, and stops nobody.
func TestUnreadableMessage(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	chain(t, log, "g000001-0", "a")
	if _, err := log.JetStream().Publish(t.Context(), "rondo.v1."+run+".rollout.g000001-1.started",
		[]byte("{")); err != nil {
		t.Fatal(err)
	}
	if last, err := log.Last(t.Context(), run, "rollout", "g000001-1"); !errors.Is(err, events.ErrMalformed) {
		t.Errorf("the end of its chain: %+v, %v", last, err)
	}
	chain(t, log, "g000001-2", "a")
	var types []events.Type
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == eventlog.Unreadable && (string(e.Data) != "{" || e.Entity != "" || e.Seq != 2) {
			t.Errorf("got entity %q, sequence %d, data %s", e.Entity, e.Seq, e.Data)
		}
		types = append(types, e.Type)
	}
	if len(types) != 3 || types[1] != eventlog.Unreadable || types[2] != events.RolloutAnnotatedType {
		t.Errorf("got %v, want the unreadable one between two events", types)
	}
}
