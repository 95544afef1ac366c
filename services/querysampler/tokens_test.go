package querysampler

import (
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// tokenConfig is a run that cuts batches at 1000 tokens, guessed to be 4 groups.
func tokenConfig(change func(*runfile.RunConfig)) runfile.RunConfig {
	return config(func(c *runfile.RunConfig) {
		c.Feeds[0] = runfile.Feed{Name: "trainer", GroupsPerBatch: 4, TokensPerBatch: 1000}
		if change != nil {
			change(c)
		}
	})
}

// end ends a group: its members have so many tokens each, a negative number has failed.
func end(l *decidertest.Log, group string, tokens ...int) {
	endAs(l, events.StopFinished, group, tokens...)
}

// endAs ends a group whose members stopped so.
func endAs(l *decidertest.Log, stop, group string, tokens ...int) {
	var members []events.Member
	for i, n := range tokens {
		id := events.RolloutID(group, i)
		members = append(members, events.Member{Rollout: id, Failed: n < 0})
		if n < 0 {
			l.Happen(events.RolloutFailedType, id, events.RolloutFailed{Class: events.ClassSandbox})
			continue
		}
		l.Happen(events.RolloutFinishedType, id, events.RolloutFinished{Tokens: n, Sampled: 1, StopReason: stop})
		l.Happen(events.RolloutScoredType, id, events.RolloutScored{})
	}
	l.Happen(events.GroupCompletedType, group, events.GroupCompleted{Members: members})
}

// endConstrained ends a group as end does, with all of its tokens sampled under a constraint.
func endConstrained(l *decidertest.Log) {
	var members []events.Member
	for i := range 2 {
		id := events.RolloutID("g000001", i)
		members = append(members, events.Member{Rollout: id})
		l.Happen(events.RolloutFinishedType, id, events.RolloutFinished{Tokens: 125, Sampled: 60, Constrained: 60,
			StopReason: events.StopFinished})
		l.Happen(events.RolloutScoredType, id, events.RolloutScored{})
	}
	l.Happen(events.GroupCompletedType, "g000001", events.GroupCompleted{Members: members})
}

// Capacity by tokens: what is complete counts as it is, what is in flight by the mean,
// and a batch as a full one.
func TestTokenCapacity(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*runfile.RunConfig)
		before func(l *decidertest.Log)
		opens  int // after the first eight, which are guessed to have 250 tokens each
	}{
		{"nothing happened", nil, func(*decidertest.Log) {}, 0},
		{"a group as guessed", nil, func(l *decidertest.Log) { end(l, "g000001", 125, 125) }, 0},
		// The mean of the guess and 50 is 150: 50 + 7 × 150 = 1100, and 7 more come to 2150.
		{"a shorter group", nil, func(l *decidertest.Log) { end(l, "g000001", 25, 25) }, 7 - 1},
		{"a longer group", nil, func(l *decidertest.Log) { end(l, "g000001", 500, 500) }, 0},
		// 125 + 7 × 187.5 = 1437.5; four more come to 2187.5.
		{"a group with a failed member", nil, func(l *decidertest.Log) { end(l, "g000001", 125, -1) }, 3},
		{"a group that nobody survived", nil, func(l *decidertest.Log) { end(l, "g000001", -1, -1) }, 1},
		{"a group that is dropped", nil, func(l *decidertest.Log) {
			end(l, "g000001", 125, 125)
			l.Happen(events.GroupDroppedType, "g000001",
				events.GroupDropped{Feed: "trainer", Reason: events.DropFiltered})
		}, 1},
		{"a batch that is less than full", nil, func(l *decidertest.Log) {
			for i := range 3 {
				end(l, events.GroupID(int64(i+1)), 125, 125)
			}
			ready(l, "trainer", 1, groupIDs(1, 3)...) // 750 of 1000: 1000 + 5 × 250 > 2000
		}, 0},
		{"weights that cover it", nil, func(l *decidertest.Log) {
			for i := range 3 {
				end(l, events.GroupID(int64(i+1)), 125, 125)
			}
			ready(l, "trainer", 1, groupIDs(1, 3)...)
			published(l, testRun, 1, 1)
		}, 3},
		// The mean of the guess and nothing is 125: 0 + 7 × 125 = 875, and 9 more come to 2000.
		{"masked by its length", func(c *runfile.RunConfig) { c.Filters.MaxTokens = 100 },
			func(l *decidertest.Log) { end(l, "g000001", 125, 125) }, 9},
		{"masked by a call that was not read", nil, func(l *decidertest.Log) {
			endAs(l, events.StopUnread,
				"g000001", 125, 125)
		}, 9},
		{"masked by an end that nobody knows", nil, func(l *decidertest.Log) {
			endAs(l, events.StopUnknown,
				"g000001", 125, 125)
		}, 9},
		{"sampled under a constraint", nil, endConstrained, 9},
		{"trained on all the same", func(c *runfile.RunConfig) { c.Filters.TrainConstrained = true },
			endConstrained, 0},
		{"masked by its reward", func(c *runfile.RunConfig) { one := 1.0; c.Feeds[0].MinReward = &one },
			func(l *decidertest.Log) { end(l, "g000001", 125, 125) }, 9},
		{"invalidated", nil, func(l *decidertest.Log) {
			end(l, "g000001", 125, 125)
			l.Happen(events.RolloutInvalidatedType, "g000001-0", events.RolloutInvalidated{Reason: "leak"})
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := decidertest.New(t, testRun, NewDecider(testRun, tokenConfig(c.change)))
			opened(l)
			if got := openedGroups(l.Settle()); len(got) != 8 {
				t.Fatalf("at first %v are opened", got)
			}
			c.before(l)
			if got := openedGroups(l.Settle()); len(got) != c.opens {
				t.Errorf("opens %v, want %d", got, c.opens)
			}
		})
	}
}

// TestTokenStepsEnd: a run of some steps opens what these need, and no more when they are composed.
func TestTokenStepsEnd(t *testing.T) {
	l := decidertest.New(t, testRun, NewDecider(testRun, tokenConfig(func(c *runfile.RunConfig) { c.Steps = 1 })))
	opened(l)
	if got := openedGroups(l.Settle()); len(got) != 4 {
		t.Fatalf("one step of four groups opens %v", got)
	}
	for i := range 3 {
		end(l, events.GroupID(int64(i+1)), 150, 150)
	}
	if got := openedGroups(l.Settle()); len(got) != 0 {
		t.Errorf("with enough in flight %v are opened", got)
	}
	end(l, "g000004", 150, 150)
	ready(l, "trainer", 1, groupIDs(1, 3)...)
	if got := openedGroups(l.Settle()); len(got) != 0 {
		t.Errorf("after the last step %v are opened", got)
	}
}

// TestEndlessTokens: counts that overflow a sum pass no budget.
func TestEndlessTokens(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Limits.BudgetTokens = 1 << 40 })
	opened(l)
	l.Settle()
	for i, want := range []bool{true, false, false} { // a run is paused once
		l.Happen(events.TurnSampledType, events.RolloutID("g000001", i%2),
			events.TurnSampled{PromptTokens: math.MaxInt, CompletionTokens: math.MaxInt})
		if got := slices.Contains(decidertest.Names(l.Settle()), "run.paused r"); got != want {
			t.Errorf("turn %d: paused %t, want %t", i, got, want)
		}
	}
}
