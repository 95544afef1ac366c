package querysampler

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// evaluation tries each of the five tasks in two groups of two, four rollouts at once.
func evaluation(change func(*runfile.RunConfig)) runfile.RunConfig {
	return config(func(c *runfile.RunConfig) {
		c.Feeds, c.Epochs, c.InFlight = nil, 2, 4
		if change != nil {
			change(c)
		}
	})
}

func newEvaluation(t *testing.T, change func(*runfile.RunConfig)) *decidertest.Log {
	t.Helper()
	l := decidertest.New(t, testRun, NewDecider(testRun, evaluation(change)))
	opened(l)
	return l
}

// Every task is tried in as many groups as there are epochs, whatever comes of them,
// and then the run closes.
func TestEvaluationEndsByItself(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		failed []bool // members of each group
		atOnce int
	}{
		"scored":             {nil, []bool{false, false}, 2},
		"one member failed":  {nil, []bool{true, false}, 2},
		"all members failed": {nil, []bool{true, true}, 2},
		"one at a time":      {func(c *runfile.RunConfig) { c.InFlight = 1 }, []bool{false, false}, 1},
		"by default":         {func(c *runfile.RunConfig) { c.InFlight = 0 }, []bool{false, false}, 10},
		"with feeds": {func(c *runfile.RunConfig) {
			c.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 2}}
		}, []bool{false, false}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEvaluation(t, c.change)
			groups, tried := map[string]string{}, map[string]int{}
			var running []string
			for range 11 {
				facts := l.Settle()
				for i, group := range openedGroups(facts) {
					groups[group] = tasksOf(t, facts)[i]
					running = append(running, group)
				}
				if len(running) > c.atOnce {
					t.Fatalf("%d groups are under way, want at most %d", len(running), c.atOnce)
				}
				if len(running) == 0 {
					if got := decidertest.Names(facts); !slices.Equal(got, []string{"run.closed r"}) {
						t.Fatalf("after %d groups: %v", len(groups), got)
					}
					break
				}
				for i, failed := range c.failed {
					if id := events.RolloutID(running[0], i); failed {
						l.Happen(events.RolloutFailedType, id, events.RolloutFailed{Class: events.ClassSandbox})
					} else {
						l.Happen(events.RolloutScoredType, id, events.RolloutScored{Reward: 1})
					}
				}
				completed(l, running[0], c.failed...)
				tried[groups[running[0]]]++
				running = running[1:]
			}
			if !maps.Equal(tried, map[string]int{"task-0": 2, "task-1": 2, "task-2": 2, "task-3": 2, "task-4": 2}) {
				t.Errorf("tried %v", tried)
			}
			if s, _, err := stateOf(l); err != nil || !s.Closed || s.Running != 0 {
				t.Errorf("at the end: %+v, %v", s, err)
			}
			if facts := l.Settle(); len(facts) != 0 {
				t.Errorf("after the end: %v", decidertest.Names(facts))
			}
			if n := countKeys(t, l, counted); n > 0 && len(NewDecider(testRun, evaluation(c.change)).cfg.Feeds) == 0 {
				t.Errorf("%d places are left that nobody gives back", n)
			}
		})
	}
}

// A rollout that never ends does not keep the evaluation from ending: its deadline comes.
func TestEvaluationWaitsForDeadlines(t *testing.T) {
	l := newEvaluation(t, func(c *runfile.RunConfig) { c.Epochs, c.InFlight = 1, 100 })
	groups := openedGroups(l.Settle())
	if len(groups) != 5 {
		t.Fatalf("opened %v", groups)
	}
	for _, g := range groups[1:] {
		completed(l, g, false, false)
	}
	if facts := l.Settle(); len(facts) != 0 {
		t.Fatalf("with a group under way: %v", decidertest.Names(facts))
	}
	l.Now = l.Wake
	for _, f := range l.Settle() {
		if f.Type != events.RolloutFailedType {
			t.Fatalf("at the deadline: %s %s", f.Type, f.Entity)
		}
	}
	completed(l, groups[0], true, true)
	if got := decidertest.Names(l.Settle()); !slices.Equal(got, []string{"run.closed r"}) {
		t.Errorf("at the end: %v", got)
	}
}

// A pinned version is that of every rollout, whatever is published meanwhile.
func TestPinnedVersion(t *testing.T) {
	for version := range int64(2) {
		l := newEvaluation(t, func(c *runfile.RunConfig) { c.PolicyVersion = &version })
		published(l, "another-run", 7, 99)
		facts := l.Settle()
		if len(facts) == 0 {
			t.Fatal("nothing is opened")
		}
		for _, f := range facts {
			var got int64
			if f.Type == events.GroupOpenedType {
				got = decidertest.Data[events.GroupOpened](t, f).PolicyVersion
			} else {
				got = decidertest.Data[events.RolloutStarted](t, f).PolicyVersion
			}
			if got != version {
				t.Errorf("%s %s is of version %d, pinned is %d", f.Type, f.Entity, got, version)
			}
		}
	}
}

// A query that comes while the last group is under way is still answered.
func TestQueriesOfAnEvaluation(t *testing.T) {
	l := newEvaluation(t, func(c *runfile.RunConfig) { c.Epochs, c.InFlight = 1, 1 })
	var asked, answered bool
	for range 10 {
		facts := l.Settle()
		groups := openedGroups(facts)
		if len(groups) == 0 {
			break
		}
		answered = answered || slices.Contains(tasksOf(t, facts), "q1")
		if s, _, _ := stateOf(l); s.Drawn == 5 && !asked {
			submitted(l, "q1")
			asked = true
		}
		completed(l, groups[0], false, false)
	}
	s, _, err := stateOf(l)
	if err != nil || !asked || !answered || !s.Closed || s.Groups != 6 {
		t.Errorf("asked %v, answered %v: %+v, %v", asked, answered, s, err)
	}
}

// A paused evaluation opens nothing, and one that was closed by an operator
// ends what it has under way.
func TestPausedAndClosedEvaluation(t *testing.T) {
	l := newEvaluation(t, nil)
	l.Settle()
	l.Happen(events.RunPausedType, testRun, events.RunPaused{})
	completed(l, "g000001", false, false)
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("a paused evaluation: %v", decidertest.Names(facts))
	}
	l.Happen(events.RunResumedType, testRun, events.RunResumed{})
	if got := openedGroups(l.Settle()); !slices.Equal(got, []string{"g000003"}) {
		t.Errorf("a resumed one opens %v", got)
	}
	l.Happen(events.RunClosedType, testRun, events.RunClosed{})
	for _, f := range l.Settle() {
		if f.Type != events.RolloutFailedType ||
			strings.HasPrefix(f.Entity, "g000001") && f.Entity != "g000001-0" && f.Entity != "g000001-1" {
			t.Errorf("a closed one: %s %s", f.Type, f.Entity)
		}
	}
}

// TestEvaluationAfterARestart: a sampler that has lost its state decides
// what the other one decides.
func TestEvaluationAfterARestart(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := evaluation(func(c *runfile.RunConfig) { c.InFlight = runfile.InFlight(2 * (1 + int(seed))) })
		s := &schedule{Log: decidertest.New(t, testRun, NewDecider(testRun, cfg)), rng: rng, cfg: cfg,
			members: map[string][]events.Member{}, size: map[string]int{}}
		opened(s.Log)
		for range 50 {
			s.happen()
			if rng.IntN(6) == 0 {
				again := replayed(t, s.Log, cfg)
				want, got := decidertest.Names(s.Decide()), decidertest.Names(again.Decide())
				if !slices.Equal(got, want) || !again.Wake.Equal(s.Wake) {
					t.Fatalf("seed %d: after a restart %v, without %v", seed, got, want)
				}
				s.Log = again
			}
			s.note(s.Settle())
		}
		checkBooks(t, s)
		// Whatever has happened, it comes to its end.
		s.Happen(events.RunResumedType, testRun, events.RunResumed{})
		for range 100 {
			if s.note(s.Settle()); len(s.flying) == 0 {
				s.Now = s.Now.Add(time.Hour) // for the members that outsiders do not start
				continue
			}
			id := s.flying[0]
			s.Happen(events.RolloutScoredType, id, events.RolloutScored{Reward: 1})
			s.over(id, events.Member{Rollout: id, Reward: 1})
		}
		if st, _, err := stateOf(s.Log); err != nil || !st.Closed || st.Drawn != 10 {
			t.Errorf("seed %d: at the end %+v, %v", seed, st, err)
		}
		if n := countKeys(t, s.Log, counted); n != 0 {
			t.Errorf("seed %d: %d places are left", seed, n)
		}
	}
}
