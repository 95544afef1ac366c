package eventlog_test

import (
	"errors"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestTasksAndQueries(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a", "quicksort"))
	servicetest.Append(t, log, servicetest.Event(t, "r", events.QuerySubmittedType, "q1",
		"0", events.QuerySubmitted{Instruction: "Why?", Task: "a"}))
	servicetest.Append(t, log, servicetest.Event(t, "r", events.QuerySubmittedType, "q2",
		"0", events.QuerySubmitted{Instruction: "Fix.", Task: "a", Verify: true}))
	for name, want := range map[string]struct {
		instruction string
		verifier    bool
	}{
		"a": {"Do a.", true}, "quicksort": {"Do quicksort.", true}, "q1": {"Why?", false}, "q2": {"Fix.", true},
	} {
		t.Run(name, func(t *testing.T) {
			task, err := log.Task(t.Context(), "r", name)
			if err != nil || task.Name != name || task.Instruction != want.instruction ||
				task.HasVerifier() != want.verifier || task.Workdir != "/app" {
				t.Errorf("task %s is %+v: %v", name, task, err)
			}
		})
	}
	for _, name := range []string{"b", "q3", "q.>", "q*", ""} {
		if task, err := log.Task(t.Context(), "r", name); !errors.Is(err, runfile.ErrNoTask) {
			t.Errorf("task %q is %+v: %v", name, task, err)
		}
	}
}
