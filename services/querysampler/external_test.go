package querysampler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func external(c *runfile.RunConfig) { c.External, c.Endpoint, c.Tasks = true, "", nil }

func openedOutside(l *decidertest.Log, group string, size int) {
	l.Happen(events.GroupOpenedType, group, events.GroupOpened{Task: "theirs", Size: size, PolicyVersion: 3})
}

func startedOutside(l *decidertest.Log, group string, member int, deadline time.Time) {
	l.Happen(events.RolloutStartedType, events.RolloutID(group, member),
		events.RolloutStarted{Group: group, Member: member, Task: "theirs", PolicyVersion: 3, Deadline: deadline})
}

// Outsiders' groups take places of the capacity, and no number of the run's own groups.
func TestOutsidersGroupsCount(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	for _, g := range []string{"x1", "xb"} {
		openedOutside(l, g, 1)
		startedOutside(l, g, 0, l.Now.Add(time.Minute))
	}
	facts := l.Settle()
	if got := openedGroups(facts); !slices.Equal(got, groupIDs(1, 2)) {
		t.Fatalf("beside two groups of outsiders %v are opened", got)
	}
	if r := decidertest.Data[events.RolloutStarted](t, facts[1]); r.Seed != rolloutSeed(0, 1, 0) ||
		r.Task != NewDecider(testRun, config(nil)).task(1) {
		t.Errorf("the first of the run's own groups begins with %+v", r)
	}
	ready(l, "trainer", 1, "x1", "g000001")
	published(l, testRun, 4, 1)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(3, 4)) {
		t.Errorf("in the place of a batch %v are opened", got)
	}
}

// An external run opens nothing by itself, keeps deadlines, and closes after its steps.
func TestExternalRun(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { external(c); c.Steps = 1 })
	opened(l)
	if facts := l.Settle(); len(facts) != 0 {
		t.Fatalf("it states %v", decidertest.Names(facts))
	}
	openedOutside(l, "x1", 2)
	startedOutside(l, "x1", 1, l.Now.Add(time.Minute))
	startedOutside(l, "x1", 0, l.Now.Add(2*time.Minute))
	if facts := l.Settle(); len(facts) != 0 || !l.Wake.Equal(l.Now.Add(time.Minute)) {
		t.Fatalf("it states %v and wakes at %s", decidertest.Names(facts), l.Wake)
	}
	l.Happen(events.RolloutScoredType, "x1-0", events.RolloutScored{})
	l.Now = l.Now.Add(time.Minute)
	facts := l.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"rollout.failed x1-1"}) {
		t.Fatalf("at the deadline: %v", got)
	}
	failed := decidertest.Data[events.RolloutFailed](t, facts[0])
	if failed.Class != events.ClassDeadline || !strings.Contains(failed.Message, "2026-05-01T12:01:00Z") {
		t.Errorf("failed as %+v", failed)
	}
	completed(l, "x1", false, true)
	ready(l, "trainer", 1, "x1")
	published(l, testRun, 1, 1)
	if got := decidertest.Names(l.Settle()); !slices.Equal(got, []string{"run.closed r"}) {
		t.Errorf("after the last step: %v", got)
	}
}

// An outsider that dies between two members leaves a group that would never complete:
// its missing members fail.
func TestMembersThatNobodyStarts(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := newLog(t, external)
		opened(l)
		openedOutside(l, "x1", 3)
		begun := l.Now
		l.Now = l.Now.Add(time.Minute)
		startedOutside(l, "x1", 1, l.Now.Add(10*time.Minute))
		l.Happen(events.RolloutScoredType, "x1-1", events.RolloutScored{})
		if facts := l.Settle(); len(facts) != 0 || !l.Wake.Equal(begun.Add(11*time.Minute)) {
			t.Fatalf("in time it states %v and wakes at %s", decidertest.Names(facts), l.Wake)
		}
		class := events.ClassDeadline
		if closed {
			l.Happen(events.RunClosedType, testRun, events.RunClosed{})
			class = events.ClassCancelled
		} else {
			l.Now = begun.Add(11 * time.Minute)
		}
		facts := l.Settle()
		want := []string{"rollout.started x1-0", "rollout.started x1-2", "rollout.failed x1-0", "rollout.failed x1-2"}
		if got := decidertest.Names(facts); !slices.Equal(got, want) {
			t.Fatalf("closed %v: %v, want %v", closed, got, want)
		}
		if r := decidertest.Data[events.RolloutStarted](t, facts[0]); r.Group != "x1" || r.Member != 0 ||
			r.Task != "theirs" || r.PolicyVersion != 3 {
			t.Errorf("a missing member is %+v", r)
		}
		if f := decidertest.Data[events.RolloutFailed](t, facts[2]); f.Class != class {
			t.Errorf("it failed as %+v", f)
		}
		if !l.Wake.IsZero() {
			t.Errorf("it wakes at %s", l.Wake)
		}
	}
}

// TestOutsidersGroupWaitsOutAnOutage: the time in which the plane, its tools or its verdicts
// were away is not the outsider's who starts one member after the other. That in which
// generators were away is: he asks none.
func TestOutsidersGroupWaitsOutAnOutage(t *testing.T) {
	l := newLog(t, external)
	opened(l)
	openedOutside(l, "x1", 2)
	begun := l.Now
	startedOutside(l, "x1", 0, begun.Add(10*time.Minute))
	if v, ok := any(NewDecider(testRun, config(external))).(pipeline.Timekeeper); !ok || !v.Keeps(l.View()) {
		t.Error("a member is missing, and no time is kept")
	}
	waited := func(stage string, from, until int) {
		l.Now = begun.Add(time.Duration(until) * time.Minute)
		l.Happen(events.StageWaitedType, stage, events.StageWaited{Since: begun.Add(time.Duration(from) * time.Minute),
			Until: l.Now})
	}
	waited(events.StageTools, 1, 4)
	waited(events.EveryStage, 3, 6) // five minutes with the last
	waited(events.StageGenerator, 6, 9)
	l.Happen(events.RolloutScoredType, "x1-0", events.RolloutScored{})
	l.Now = begun.Add(15*time.Minute - time.Second)
	if facts := l.Settle(); len(facts) != 0 || !l.Wake.Equal(begun.Add(15*time.Minute)) {
		t.Fatalf("it states %v and wakes after %s", decidertest.Names(facts), l.Wake.Sub(begun))
	}
	if v := any(NewDecider(testRun, config(external))).(pipeline.Timekeeper); !v.Keeps(l.View()) {
		t.Error("the other member is missing, and no time is kept")
	}
	l.Now = begun.Add(15 * time.Minute)
	if got := decidertest.Names(l.Settle()); !slices.Equal(got,
		[]string{"rollout.started x1-1", "rollout.failed x1-1"}) {
		t.Errorf("behind that: %v", got)
	}
}
