package replay

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestOutageIsReplayed: what an outage has cost no rollout costs none in a
// run that is decided again.
func TestOutageIsReplayed(t *testing.T) {
	r := clitest.NewRecorded(t, querysampler.Run)
	started := servicetest.Wait(t, r.Log, r.Run, events.RolloutStartedType,
		events.RolloutID(events.GroupID(1), 0), 1)[0]
	late := started.Time.Add(8 * time.Hour)
	state := func(typ events.Type, entity, source string, prev uint64, data any) {
		t.Helper()
		e := servicetest.Event(t, r.Run, typ, entity, "0", data)
		e.Time, e.Source, e.Prev = late, source, prev
		servicetest.Append(t, r.Log, e)
	}
	state(events.StageWaitedType, events.EveryStage, "runtime/querysampler", 0,
		events.StageWaited{Since: started.Time, Until: late.Add(time.Minute)})
	state(events.RolloutFailedType, started.Entity, "generator", started.Seq,
		events.RolloutFailed{Class: events.ClassEndpoint})
	cfg, err := r.Log.RecordedConfig(t.Context(), r.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := As(t.Context(), r.Log, Options{Run: r.Run, As: "second", Config: cfg}); err != nil {
		t.Fatal(err)
	}
	if waited := servicetest.All(t, r.Log, "second", events.StageWaitedType); len(waited) != 1 {
		t.Errorf("%d of one statement are copied", len(waited))
	}
	for _, e := range servicetest.All(t, r.Log, "second", events.RolloutFailedType) {
		if failed := servicetest.Data[events.RolloutFailed](t, e); failed.Class == events.ClassDeadline {
			t.Fatalf("%s fails: %s", e.Entity, failed.Message)
		}
	}
}
