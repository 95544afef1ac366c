package querysampler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime/decidertest"
)

func refusedBy(l *decidertest.Log, class string, rollouts ...string) {
	for _, id := range rollouts {
		l.Happen(events.RolloutFailedType, id, events.RolloutFailed{Stage: events.StageGenerator, Class: class, Message: "connection refused"})
	}
}

// Three groups of two: six failures in a row pause the run, with their cause; resumed, it gets as many again.
func TestBrake(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	refusedBy(l, events.ClassEndpoint, "g000001-0", "g000001-1", "g000002-0")
	refusedBy(l, events.ClassSandbox, "g000002-1") // says nothing of the endpoint
	refusedBy(l, events.ClassEndpoint, "g000003-0", "g000003-1")
	if facts := l.Settle(); len(facts) != 0 {
		t.Fatalf("after 5 failures: %v", decidertest.Names(facts))
	}
	refusedBy(l, events.ClassEndpoint, "g000004-0")
	facts := l.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"run.paused r"}) {
		t.Fatalf("after 6 failures: %v", got)
	}
	reason := decidertest.Data[events.RunPaused](t, facts[0]).Reason
	for _, part := range []string{"6 rollouts in a row", "endpoint", "connection refused", "rondo run resume r"} {
		if !strings.Contains(reason, part) {
			t.Errorf("the reason %q does not say %q", reason, part)
		}
	}
	completed(l, "g000001", true, true)
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("while it is paused: %v", decidertest.Names(facts))
	}
	first := facts[0].ID
	l.Happen(events.RunResumedType, testRun, events.RunResumed{})
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(5, 5)) {
		t.Fatalf("resumed it opens %v", got)
	}
	refusedBy(l, events.ClassEndpoint, "g000004-1", "g000005-0", "g000005-1")
	refusedBy(l, events.ClassEndpoint, "g000006-0", "g000006-1")
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("5 failures after it was resumed: %v", decidertest.Names(facts))
	}
	refusedBy(l, events.ClassEndpoint, "g000007-0")
	if facts := l.Settle(); len(facts) != 1 || facts[0].Type != events.RunPausedType || facts[0].ID == first {
		t.Errorf("6 failures after it was resumed: %v", decidertest.Names(facts))
	}
}

// Any turn shows that the endpoint answers; outsiders' failures are their own.
func TestBrakeIsReleased(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	refusedBy(l, events.ClassEndpoint, "g000001-0", "g000001-1", "g000002-0", "g000002-1", "g000003-0")
	l.Happen(events.TurnSampledType, "g000003-1", events.TurnSampled{})
	refusedBy(l, events.ClassEndpoint, "g000003-1", "g000004-0")
	refusedBy(l, events.ClassEndpoint, "x1-0", "x1-1", "x1-2", "x1-3", "x1-4", "x1-5")
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("%v", decidertest.Names(facts))
	}
}

// Where the endpoint hangs, tries fail there and deadlines end the rollouts.
func TestBrakeOfAnEndpointThatHangs(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	hangs := func(rollouts ...string) {
		for _, id := range rollouts {
			l.Happen(events.RolloutRetriedType, id, events.RolloutRetried{Stage: events.StageGenerator, Class: events.ClassEndpoint, Message: "no answer"})
		}
	}
	hangs("g000001-0", "g000001-1", "g000002-0", "g000002-1", "g000003-0", "g000003-1", "g000004-0")
	l.Happen(events.TurnSampledType, "g000004-0", events.TurnSampled{})
	l.Now = l.Now.Add(time.Hour)
	facts := l.Settle()
	if last := facts[len(facts)-1]; last.Type != events.RunPausedType || !strings.Contains(string(last.Data), "6 rollouts in a row") || !strings.Contains(string(last.Data), "no answer") {
		t.Errorf("after the deadlines: %v, %s", decidertest.Names(facts), last.Data)
	}
}
