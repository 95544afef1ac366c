package eventlog_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRollouts gives rollouts in the order of their outcomes, whole, and
// those in flight not at all.
func TestRollouts(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	state := func(typ events.Type, id, ordinal string, data any) {
		t.Helper()
		servicetest.Append(t, log, servicetest.Event(t, "r", typ, id, ordinal, data))
	}
	state(events.QuerySubmittedType, "q1", "0", events.QuerySubmitted{Instruction: "Why?", Task: "a"})
	state(events.QuerySubmittedType, "q2", "0", events.QuerySubmitted{Instruction: "Fix.", Task: "a", Verify: true})
	for id, task := range map[string]string{"g000001-0": "a", "g000001-1": "a", "g000002-0": "q1",
		"g000003-0": "q2", "g000004-0": "gone"} {
		servicetest.StartRollout(t, log, "r", id, task)
		state(events.RolloutRetriedType, id, "0", events.RolloutRetried{Stage: events.StageGenerator,
			Class: events.ClassEndpoint})
		state(events.RolloutAnnotatedType, id, "0", events.RolloutAnnotated{Text: "odd"})
	}
	state(events.RolloutFailedType, "g000003-0", "0", events.RolloutFailed{Stage: events.StageTools})
	state(events.RolloutFinishedType, "g000001-0", "0", events.RolloutFinished{Task: "a"})
	state(events.RolloutScoredType, "g000001-0", "0", events.RolloutScored{Reward: 0.5})
	state(events.RolloutAnnotatedType, "g000001-0", "1", events.RolloutAnnotated{Text: "late"})
	state(events.RolloutFailedType, "g000002-0", "0", events.RolloutFailed{})
	state(events.RolloutFailedType, "g000004-0", "0", events.RolloutFailed{})

	cfg, err := log.Config(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range log.Rollouts(t.Context(), "r") {
		if err != nil {
			t.Fatal(err)
		}
		task, err := r.Task(cfg)
		if err != nil && !errors.Is(err, runfile.ErrNoTask) {
			t.Error(err)
		}
		got = append(got, fmt.Sprint(r.ID, " ", r.Outcome.Type, " ", r.Outcome.Entity, " ", task.Name,
			" ", task.HasVerifier(), " ", r.Scored != nil && r.Finished != nil))
	}
	if want := []string{
		"g000003-0 rollout.failed g000003-0 q2 true false", "g000001-0 rollout.scored g000001-0 a true true",
		"g000002-0 rollout.failed g000002-0 q1 false false", "g000004-0 rollout.failed g000004-0  false false",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range log.Rollouts(t.Context(), "r") {
		break // whoever has seen enough may leave
	}
	for _, err := range log.Rollouts(t.Context(), "none") {
		if !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
	}
}
