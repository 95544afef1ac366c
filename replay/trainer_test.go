package replay

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestABatchThatIsTakenTwice: a trainer that states a step again, with what it measured or after a
// rewind, takes no other batch in a run that is made of the recorded one.
func TestABatchThatIsTakenTwice(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 0)
	r.Batch("trainer", 1)
	r.State(events.BatchConsumedType, "trainer", "a", events.BatchConsumed{Step: 1})
	r.State(events.BatchConsumedType, "trainer", "b", events.BatchConsumed{Step: 1,
		LogprobGap: &events.LogprobGap{Tokens: 1}})
	r.State(events.BatchRewoundType, "trainer", "c", events.BatchRewound{})
	r.State(events.BatchConsumedType, "trainer", "d", events.BatchConsumed{Step: 1})
	r.Whole(2, "fix-a", 0, 1, 0)
	r.Batch("trainer", 2)
	r.State(events.RunPausedType, "first", "between", events.RunPaused{})
	r.Consumed("trainer", 2)
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := As(t.Context(), r.Log, Options{Run: "first", As: "second", Config: cfg}); err != nil {
		t.Fatal(err)
	}
	var order []string
	for e, err := range r.Log.All(t.Context(), "second", 1) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Type == events.RunPausedType:
			order = append(order, "paused")
		case e.Type == events.BatchConsumedType && e.Entity == "trainer":
			order = append(order, "step "+events.Ordinal(servicetest.Data[events.BatchConsumed](t, e).Step))
		}
	}
	if !slices.Equal(order, []string{"step 1", "paused", "step 2"}) {
		t.Errorf("the new run's trainer: %v", order)
	}
}

// TestWeightsOfTheRecordedRunAreTheNewOnes: the new run's feeder expects no version of a step that
// the recorded run's weights cover, so what was trained then is trained now.
func TestWeightsOfTheRecordedRunAreTheNewOnes(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 0)
	r.Batch("trainer", 1)
	r.Consumed("trainer", 1)
	r.State(events.WeightsPublishedType, "p", "1", events.WeightsPublished{Policy: "p", Version: 1,
		Run: "first", ThroughStep: 1})
	r.Whole(2, "fix-a", 0, 1, 0)
	r.Batch("trainer", 2)
	r.Consumed("trainer", 2)
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Staleness.Max = 1
	if _, err := As(t.Context(), r.Log, Options{Run: "first", As: "second", Config: cfg}); err != nil {
		t.Fatal(err)
	}
	var said []string
	for e, err := range r.Log.All(t.Context(), "second", 1) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case events.WeightsPublishedType:
			said = append(said, servicetest.Data[events.WeightsPublished](t, e).Run)
		case events.BatchReadyType, events.GroupDroppedType:
			if e.Entity != "shadow" {
				said = append(said, string(e.Type))
			}
		}
	}
	if want := []string{"batch.ready", "second", "batch.ready"}; !slices.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
	}
}
