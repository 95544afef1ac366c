package querysampler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func refusedBy(l *decidertest.Log, class string, rollouts ...string) {
	stage := map[string]string{events.ClassEndpoint: events.StageGenerator,
		events.ClassBadResponse: events.StageGenerator, events.ClassVerifier: events.StageScorer}[class]
	if stage == "" {
		stage = events.StageTools
	}
	for _, id := range rollouts {
		l.Happen(events.RolloutFailedType, id, events.RolloutFailed{Stage: stage, Class: class,
			Message: "connection refused"})
	}
}

// noBreaker makes a run without a circuit breaker.
func noBreaker(c *runfile.RunConfig) { c.Limits.HopelessGroups = 0 }

// Three groups of two: six failures at the endpoint pause a run, with their cause;
// resumed, it gets as many again.
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
	for _, part := range []string{"6 of the last 7 rollouts failed at the stage generator",
		"connection refused", "rondo run resume r"} {
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

// Where the endpoint hangs, tries fail there and deadlines end the rollouts.
// Some never come to a try.
func TestBrakeOfAnEndpointThatHangs(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	for _, id := range []string{"g000001-0", "g000001-1", "g000002-0", "g000002-1", "g000003-0",
		"g000003-1", "g000004-0"} {
		l.Happen(events.RolloutRetriedType, id, events.RolloutRetried{Stage: events.StageGenerator,
			Class: events.ClassEndpoint, Message: "no answer"})
	}
	l.Happen(events.TurnSampledType, "g000004-0", events.TurnSampled{})
	l.Now = l.Now.Add(time.Hour)
	facts := l.Settle()
	last := facts[len(facts)-1]
	if last.Type != events.RunPausedType {
		t.Fatalf("after the deadlines: %v", decidertest.Names(facts))
	}
	if paused := decidertest.Data[events.RunPaused](t, last); paused.Class != events.ClassEndpoint ||
		!strings.Contains(paused.Reason, "7 of the last 8 rollouts failed at the stage generator") {
		t.Errorf("%+v", paused)
	}
}

// TestBrakeOfSilence: nothing is ever answered, and nobody says so.
func TestBrakeOfSilence(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	l.Now = l.Now.Add(time.Hour)
	facts := l.Settle()
	if last := facts[len(facts)-1]; last.Type != events.RunPausedType ||
		!strings.Contains(string(last.Data), "not one turn: the endpoint hangs, or no generator runs") {
		t.Errorf("after the deadlines: %v, %s", decidertest.Names(facts), last.Data)
	}
}

// TestBrakeOfEachStage: six failures at one stage pause the run, whatever gets
// past the stage between them.
func TestBrakeOfEachStage(t *testing.T) {
	all := []string{"g000001-0", "g000001-1", "g000002-0", "g000002-1", "g000003-0", "g000003-1"}
	passed := map[string]func(l *decidertest.Log){
		events.ClassBadResponse: func(l *decidertest.Log) {
			l.Happen(events.TurnSampledType,
				"g000004-0", events.TurnSampled{})
		},
		events.ClassSandbox: func(l *decidertest.Log) {
			l.Happen(events.ToolsCompletedType,
				"g000004-0", events.ToolsCompleted{})
		},
		events.ClassInternal: func(l *decidertest.Log) {
			l.Happen(events.ToolsCompletedType,
				"g000004-0", events.ToolsCompleted{})
		},
		events.ClassVerifier: func(l *decidertest.Log) {
			l.Happen(events.RolloutScoredType,
				"g000004-0", events.RolloutScored{})
		},
	}
	for class, pass := range passed {
		for name, c := range map[string]struct {
			change  func(*runfile.RunConfig)
			happens func(l *decidertest.Log)
			paused  bool
		}{
			"in a row": {nil, func(l *decidertest.Log) { refusedBy(l, class, all...) }, true},
			"with one that passed": {nil, func(l *decidertest.Log) {
				refusedBy(l, class,
					all[:5]...)
				pass(l)
				refusedBy(l, class, all[5])
			}, true},
			"too few": {nil, func(l *decidertest.Log) { refusedBy(l, class, all[:5]...) }, false},
			"of outsiders": {nil, func(l *decidertest.Log) {
				refusedBy(l, class, "x1-0", "x1-1", "x1-2", "x1-3",
					"x1-4", "x1-5", "x1-6")
			}, false},
			"with other causes": {nil, func(l *decidertest.Log) {
				refusedBy(l, class, all[:5]...)
				refusedBy(l,
					events.ClassCancelled, all[5])
			}, false},
			"no breaker": {noBreaker, func(l *decidertest.Log) { refusedBy(l, class, all...) }, false},
			"sooner": {func(c *runfile.RunConfig) { c.Limits.HopelessGroups = 1 },
				func(l *decidertest.Log) { refusedBy(l, class, all[:2]...) }, true},
			"in an evaluation": {func(c *runfile.RunConfig) { c.Epochs = 1 },
				func(l *decidertest.Log) { refusedBy(l, class, all...) }, false},
		} {
			l := newLog(t, c.change)
			opened(l)
			l.Settle()
			c.happens(l)
			facts := slices.DeleteFunc(l.Settle(), func(e events.Event) bool { return e.Type != events.RunPausedType })
			if (len(facts) == 1) != c.paused {
				t.Errorf("%s, %s: %v", class, name, decidertest.Names(facts))
				continue
			}
			if !c.paused {
				continue
			}
			paused := decidertest.Data[events.RunPaused](t, facts[0])
			if paused.Class != class || !strings.Contains(paused.Reason, "failed at the stage") ||
				!strings.Contains(paused.Reason, "connection refused") {
				t.Errorf("%s, %s: paused by %q: %s", class, name, paused.Class, paused.Reason)
			}
			l.Happen(events.RunResumedType, testRun, events.RunResumed{})
			if facts := l.Settle(); slices.ContainsFunc(facts,
				func(e events.Event) bool { return e.Type == events.RunPausedType }) {
				t.Errorf("%s, %s: it is paused again at once: %v", class, name, decidertest.Names(facts))
			}
		}
	}
}

// TestFeedbackThatNeverComes is nobody's failure: deadlines of finished rollouts pause no run.
func TestFeedbackThatNeverComes(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	for _, e := range l.Settle() {
		if e.Type == events.RolloutStartedType {
			l.Happen(events.TurnSampledType, e.Entity, events.TurnSampled{})
			l.Happen(events.RolloutFinishedType, e.Entity, events.RolloutFinished{})
		}
	}
	l.Now = l.Now.Add(time.Hour)
	if facts := l.Settle(); len(facts) == 0 ||
		slices.ContainsFunc(facts, func(e events.Event) bool { return e.Type == events.RunPausedType }) {
		t.Errorf("after the deadlines: %v", decidertest.Names(facts))
	}
}

// TestBudget: all turns count, also outsiders'; what is open goes on. A new process knows of it
// from the log, and a resumed run has as much again.
func TestBudget(t *testing.T) {
	change := func(c *runfile.RunConfig) { c.Limits.BudgetTokens = 100 }
	for _, restart := range []bool{false, true} {
		l := newLog(t, change)
		opened(l)
		l.Settle()
		spend := func(rollout string, prompt, completion int) []string {
			l.Happen(events.TurnSampledType, rollout, events.TurnSampled{PromptTokens: prompt,
				CompletionTokens: completion})
			return decidertest.Names(l.Settle())
		}
		if got := append(spend("g000001-0", 50, 10), spend("x1-0", 30, 9)...); len(got) != 0 {
			t.Fatalf("after 99 tokens: %v", got)
		}
		if restart {
			l = replayed(t, l, config(change))
		}
		if got := spend("g000001-1", 0, 1); !slices.Equal(got, []string{"run.paused r"}) {
			t.Fatalf("after 100 tokens: %v", got)
		}
		completed(l, "g000001", true, true)
		if got := spend("g000002-0", 70, 20); len(got) != 0 {
			t.Errorf("while it is paused: %v", got)
		}
		l.Happen(events.RunResumedType, testRun, events.RunResumed{})
		if got := openedGroups(l.Settle()); len(got) != 1 {
			t.Errorf("resumed it opens %v", got)
		}
		if got := spend("g000002-1", 99, 0); len(got) != 0 {
			t.Errorf("99 tokens after it was resumed: %v", got)
		}
		// An operator's own pause grants nothing.
		l.Happen(events.RunPausedType, testRun, events.RunPaused{Reason: "lunch"})
		l.Happen(events.RunResumedType, testRun, events.RunResumed{})
		l.Settle()
		if got := spend("g000002-1", 1, 0); !slices.Equal(got, []string{"run.paused r"}) {
			t.Errorf("100 tokens after it was resumed: %v", got)
		}
	}
}
