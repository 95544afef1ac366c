package events

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestAgentsClock: an agent that works for long between two turns, behind a wait for its runner, is
// not given up before its runner ends it, and what comes behind its end has the time of every
// rollout.
func TestAgentsClock(t *testing.T) {
	limits := runfile.Limits{Timeout: runfile.Duration(time.Minute)}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(typ Type, seconds int) Event {
		return Event{Type: typ, Entity: "g000001-0", Time: began.Add(time.Duration(seconds) * time.Second),
			Route: runfile.RouteFinal}
	}
	var c Clock
	var p Progress
	for _, step := range []struct {
		event Event
		used  time.Duration
		due   int // seconds
	}{
		{at(RolloutStartedType, 0), 0, 60},
		{at(WorkspaceCalledType, 1), 0, 121},
		{at(TurnSampledType, 50), 10 * time.Second, 160},
		{at(WorkspaceAnsweredType, 99), 0, 209},
		{at(RolloutFinishedType, 100), 0, 160},
	} {
		p.Apply(step.event)
		c.Move(step.event, step.used)
		if due := c.Due("g000001-0", began.Add(time.Minute), p.Stage,
			limits); !due.Equal(began.Add(time.Duration(step.due) * time.Second)) {
			t.Errorf("behind %s it is due at %s", step.event.Type, due.Sub(began))
		}
	}
}

// TestRestartsOfAgents: a start behind recorded turns costs no try, lets the agent's time begin
// anew, and what the agent has not come to is no part of its episode.
func TestRestartsOfAgents(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var chain []Event
	happen := func(seconds int, e Event, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		e.Seq, e.Time = uint64(len(chain)+1), began.Add(time.Duration(seconds)*time.Second)
		chain = append(chain, e)
	}
	next := func(seconds int, typ Type, ordinal string, data any) {
		t.Helper()
		e, err := New("r", typ, "g000001-0", ordinal, data)
		e.Route = runfile.RouteFinal
		happen(seconds, e, err)
	}
	next(0, RolloutStartedType, "0", RolloutStarted{Group: "g000001", Deadline: began.Add(time.Minute)})
	next(1, WorkspaceCalledType, AgentCall, WorkspaceCalled{Op: WorkspaceAgent})
	for i := range 3 {
		next(2+i, TurnSampledType, Ordinal(i), TurnSampled{Turn: i, LatencyMS: 1000})
	}
	limits := runfile.Limits{Timeout: runfile.Duration(time.Minute), Tries: 2}
	ids := map[string]bool{}
	for i := range 3 {
		r, err := FoldRollout(chain)
		if err != nil || r.Restarts != i || r.Tries != 0 {
			t.Fatalf("%d restarts, %d tries, %v", r.Restarts, r.Tries, err)
		}
		e, err := r.Restart(ClassSandbox, ErrElsewhere)
		happen(100*(i+1), e, err)
		ids[e.ID] = true
		if retried, err := Data[RolloutRetried](e); err != nil || retried.Behind != 3 || retried.Try != i+1 {
			t.Errorf("%+v, %v", retried, err)
		}
	}
	r, err := FoldRollout(chain)
	if want := began.Add((300 + 60 + 57) * time.Second); err != nil || !r.Due(limits).Equal(want) || len(ids) != 3 {
		t.Errorf("due at %s, want %s: %v, %v", r.Due(limits).Sub(began), want.Sub(began), ids, err)
	}
	next(301, WorkspaceAnsweredType, AgentCall, WorkspaceAnswered{Agent: &AgentEnded{StopReason: StopFinished,
		Recalled: 1, Left: []int{0, 2}}})
	next(302, RolloutFinishedType, "0", RolloutFinished{Turns: 1})
	if r, err = FoldRollout(chain); err != nil || len(r.Taken()) != 1 || r.Taken()[0].Turn != 1 ||
		!r.Left(2) || r.Left(1) {
		t.Errorf("%+v, %v", r.Taken(), err)
	}
	if _, err := r.WorkspaceAfter(1); err != nil {
		t.Error(err)
	}
	if _, err := r.WorkspaceAfter(2); err == nil {
		t.Error("a turn that was left behind has a workspace")
	}
}
