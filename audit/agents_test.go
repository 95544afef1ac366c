package audit

import (
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// TestAgents: an agent is started anew behind the turns that are there, and the episode has those
// of them to which it has come.
func TestAgents(t *testing.T) {
	type fact struct {
		typ  events.Type
		data any
	}
	called := fact{events.WorkspaceCalledType, events.WorkspaceCalled{Op: events.WorkspaceAgent}}
	turn := func(n int) fact { return fact{events.TurnSampledType, events.TurnSampled{Turn: n}} }
	restart := func(behind int) fact { return fact{events.RolloutRetriedType, events.RolloutRetried{Behind: behind}} }
	ended := func(recalled int, left ...int) fact {
		return fact{events.WorkspaceAnsweredType, events.WorkspaceAnswered{Agent: &events.AgentEnded{Recalled: recalled,
			Left: left}}}
	}
	finished := func(turns int) fact { return fact{events.RolloutFinishedType, events.RolloutFinished{Turns: turns}} }
	for name, c := range map[string]struct {
		facts []fact
		wrong bool
	}{
		"undisturbed": {[]fact{called, turn(0), turn(1), ended(0), finished(2)}, false},
		"came back":   {[]fact{called, turn(0), restart(1), turn(1), ended(1), finished(2)}, false},
		"left a turn": {[]fact{called, turn(0), turn(1), restart(2), turn(2), ended(1, 1), finished(2)},
			false},
		"a left turn counts": {[]fact{called, turn(0), turn(1), restart(2), turn(2), ended(1, 1), finished(3)},
			true},
		"behind another turn":     {[]fact{called, turn(0), restart(2)}, true},
		"no agent":                {[]fact{turn(0), restart(1)}, true},
		"left what never was":     {[]fact{called, turn(0), restart(1), ended(0, 1)}, true},
		"recalled what never was": {[]fact{called, turn(0), restart(1), ended(1, 0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, checker := &rolloutState{}, &Checker{books: &books.Run{}}
			var err error
			for i, f := range c.facts {
				e, failed := events.New("r", f.typ, "g000001-0", events.AgentCall, f.data)
				if failed != nil {
					t.Fatal(failed)
				}
				if err != nil {
					t.Fatalf("fact %d is wrong already: %v", i-1, err)
				}
				err = checker.progress(r, e)
			}
			if (err != nil) != c.wrong {
				t.Error(err)
			}
		})
	}
}
