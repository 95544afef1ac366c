package querysampler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

const testRun = "r"

// config is a small run: 2 groups of 2 a batch, 5 tasks.
func config(change func(*runfile.RunConfig)) runfile.RunConfig {
	cfg := runfile.DefaultRunConfig()
	cfg.GroupSize = 2
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 2}, {Name: "second", GroupsPerBatch: 7}}
	cfg.InFlight, cfg.Staleness.Max = 0, 1
	cfg.Limits.Timeout = runfile.Duration(10 * time.Minute)
	for i := range 5 {
		cfg.Tasks = append(cfg.Tasks, runfile.TaskSpec{Name: fmt.Sprintf("task-%d", i)})
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func newLog(t testing.TB, change func(*runfile.RunConfig)) *decidertest.Log {
	t.Helper()
	return decidertest.New(t, testRun, NewDecider(testRun, config(change)))
}

func opened(l *decidertest.Log) { l.Happen(events.RunOpenedType, testRun, events.RunOpened{}) }

// openedGroups are the groups that facts open.
func openedGroups(facts []events.Event) (groups []string) {
	for _, f := range facts {
		if f.Type == events.GroupOpenedType {
			groups = append(groups, f.Entity)
		}
	}
	return groups
}

func groupIDs(from, to int64) (ids []string) {
	for n := from; n <= to; n++ {
		ids = append(ids, events.GroupID(n))
	}
	return ids
}

func completed(l *decidertest.Log, group string, failed ...bool) {
	c := events.GroupCompleted{}
	for i, f := range failed {
		c.Members = append(c.Members, events.Member{Rollout: events.RolloutID(group, i), Failed: f})
	}
	l.Happen(events.GroupCompletedType, group, c)
}

func ready(l *decidertest.Log, feed string, step int64, groups ...string) {
	l.Happen(events.BatchReadyType, feed, events.BatchReady{Step: step, Groups: groups})
}

func published(l *decidertest.Log, run string, version, through int64) {
	l.Happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Policy: "policy", Run: run,
		Version: version, ThroughStep: through})
}

func TestOpensGroups(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Staleness.Max = 0 })
	if facts := l.Settle(); len(facts) != 0 {
		t.Fatalf("before the run is opened: %v", decidertest.Names(facts))
	}
	opened(l)
	published(l, "another-run", 7, 99)
	facts := l.Settle()
	want := []string{
		"group.opened g000001", "rollout.started g000001-0", "rollout.started g000001-1",
		"group.opened g000002", "rollout.started g000002-0", "rollout.started g000002-1",
	}
	if got := decidertest.Names(facts); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	group := decidertest.Data[events.GroupOpened](t, facts[0])
	if group.Size != 2 || group.PolicyVersion != 7 {
		t.Errorf("group %+v", group)
	}
	seeds := map[int64]bool{}
	for i, f := range []events.Event{facts[1], facts[2]} {
		r := decidertest.Data[events.RolloutStarted](t, f)
		if r.Group != "g000001" || r.Member != i || r.Task != group.Task || r.PolicyVersion != 7 ||
			!r.Deadline.Equal(l.Now.Add(10*time.Minute)) {
			t.Errorf("member %d: %+v", i, r)
		}
		seeds[r.Seed] = true
	}
	if len(seeds) != 2 {
		t.Error("two members have one seed")
	}
}

// Capacity is (max_staleness + 1) × groups per batch, counted until weights cover a group's batch.
func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(l *decidertest.Log)
		opens  []string // after the first four
	}{
		{"nothing happened", func(*decidertest.Log) {}, nil},
		{"completed groups still count", func(l *decidertest.Log) { completed(l, "g000001", false, false) }, nil},
		{"batched groups still count", func(l *decidertest.Log) { ready(l, "trainer", 1, "g000001", "g000002") }, nil},
		{"weights that cover no batch", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000002")
			published(l, testRun, 1, 0)
		}, nil},
		{"weights that cover a batch", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000002")
			published(l, testRun, 1, 1)
		}, groupIDs(5, 6)},
		{"weights that cover two batches", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000003")
			ready(l, "trainer", 2, "g000002", "g000004")
			published(l, testRun, 1, 2)
		}, groupIDs(5, 8)},
		{"the same weights twice", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000002")
			published(l, testRun, 1, 1)
			published(l, testRun, 1, 1)
		}, groupIDs(5, 6)},
		{"weights of another run", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000002")
			published(l, "other", 1, 1)
		}, nil},
		{"another feed's batch", func(l *decidertest.Log) {
			ready(l, "second", 1, "g000001", "g000002")
			published(l, testRun, 1, 1)
		}, nil},
		{"a group that nobody survived", func(l *decidertest.Log) { completed(l, "g000001", true, true) },
			groupIDs(5, 5)},
		{"a group with one survivor", func(l *decidertest.Log) { completed(l, "g000001", true, false) }, nil},
		{"a dropped group", func(l *decidertest.Log) {
			l.Happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
		}, groupIDs(5, 5)},
		{"a group that is dropped twice", func(l *decidertest.Log) {
			for range 2 {
				l.Happen(events.GroupDroppedType, "g000002",
					events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
			}
		}, groupIDs(5, 5)},
		{"a group that another feed drops", func(l *decidertest.Log) {
			l.Happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: "second", Reason: events.DropStale})
		}, nil},
		{"a drop that raced with a batch, and lost", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000002")
			l.Happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
			published(l, testRun, 1, 1)
		}, groupIDs(5, 6)},
		{"a drop that raced with a batch, and came first", func(l *decidertest.Log) {
			l.Happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
			ready(l, "trainer", 1, "g000001", "g000002")
			published(l, testRun, 1, 1)
		}, groupIDs(5, 6)},
		{"a drop after the weights", func(l *decidertest.Log) {
			ready(l, "trainer", 1, "g000001", "g000002")
			published(l, testRun, 1, 1)
			l.Happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
		}, groupIDs(5, 6)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t, nil)
			opened(l)
			if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 4)) {
				t.Fatalf("at first %v are opened", got)
			}
			c.before(l)
			if got := openedGroups(l.Settle()); !slices.Equal(got, c.opens) {
				t.Errorf("opens %v, want %v", got, c.opens)
			}
		})
	}
}

// An export has no trainer: what it has collected is done with, and its steps end the run.
func TestExportPacesItself(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Feeds[0].MinReward, c.Steps = new(1.0), 3 })
	opened(l)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 4)) {
		t.Fatalf("at first %v are opened", got)
	}
	ready(l, "trainer", 1, groupIDs(1, 2)...)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(5, 6)) {
		t.Errorf("after a batch %v are opened", got)
	}
	ready(l, "trainer", 2, groupIDs(3, 4)...)
	ready(l, "trainer", 3, groupIDs(5, 6)...)
	if facts := l.Settle(); len(facts) == 0 || facts[0].Type != events.RunClosedType {
		t.Errorf("after the last step: %v", decidertest.Names(facts))
	}
}

// A sampler that dies between two appends leaves a group with some members only, or none.
func TestCompletesHalfOpenedGroups(t *testing.T) {
	for started := range 3 {
		t.Run(fmt.Sprintf("%d members", started), func(t *testing.T) {
			l := newLog(t, nil)
			opened(l)
			l.Happen(events.GroupOpenedType, "g000001", events.GroupOpened{Task: "task-3", Size: 2, PolicyVersion: 4})
			published(l, testRun, 9, 0)
			for i := range started {
				l.Happen(events.RolloutStartedType, events.RolloutID("g000001", i),
					events.RolloutStarted{Group: "g000001", Member: i, Deadline: l.Now.Add(time.Minute)})
			}
			var members []int
			for _, f := range l.Settle() {
				if f.Type == events.RolloutStartedType && strings.HasPrefix(f.Entity, "g000001-") {
					r := decidertest.Data[events.RolloutStarted](t, f)
					members = append(members, r.Member)
					if r.Task != "task-3" || r.PolicyVersion != 4 || r.Seed != rolloutSeed(0, 1, r.Member) {
						t.Errorf("a late member differs from its group: %+v", r)
					}
				}
				if f.Type == events.GroupOpenedType && f.Entity == "g000001" {
					t.Error("the group is opened again")
				}
			}
			if want := []int{0, 1}[started:]; !slices.Equal(members, want) {
				t.Errorf("members %v are started, want %v", members, want)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	start := l.Now
	l.Happen(events.RolloutScoredType, "g000001-0", events.RolloutScored{Reward: 1})
	l.Happen(events.RolloutFailedType, "g000001-1", events.RolloutFailed{Class: events.ClassSandbox})
	l.Happen(events.RolloutFinishedType, "g000002-0", events.RolloutFinished{}) // finished, but not scored

	l.Now = start.Add(10*time.Minute - time.Nanosecond)
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("before the deadline: %v", decidertest.Names(facts))
	}
	if !l.Wake.Equal(start.Add(10 * time.Minute)) {
		t.Errorf("wakes at %s, want the deadline %s", l.Wake, start.Add(10*time.Minute))
	}
	l.Now = start.Add(10 * time.Minute)
	var failed []string
	for _, f := range l.Settle() {
		r := decidertest.Data[events.RolloutFailed](t, f)
		if f.Type != events.RolloutFailedType || r.Stage != events.StageSampler || r.Class != events.ClassDeadline ||
			!strings.Contains(r.Message, "10m0s") {
			t.Errorf("%s %s: %+v", f.Type, f.Entity, r)
		}
		failed = append(failed, f.Entity)
	}
	want := []string{"g000002-0", "g000002-1", "g000003-0", "g000003-1", "g000004-0", "g000004-1"}
	if !slices.Equal(failed, want) {
		t.Errorf("failed %v, want %v", failed, want)
	}
	if !l.Wake.IsZero() {
		t.Errorf("with nothing in flight it wakes at %s", l.Wake)
	}
}

// TestWaitingIsNotOverdue: what a rollout has waited for until it went on costs it nothing, what
// its agent used of limits.timeout does, and a scorer has all of it.
func TestWaitingIsNotOverdue(t *testing.T) {
	calls := []events.ToolCall{{ID: "c"}}
	minutes := func(n float64) float64 { return n * 60_000 }
	l := newLog(t, func(c *runfile.RunConfig) { c.Limits.HopelessGroups = 0 })
	opened(l)
	l.Settle()
	start := l.Now
	after := func(n int) { l.Now = start.Add(time.Duration(n) * time.Minute) }
	after(9)
	for _, id := range []string{"g000001-0", "g000001-1", "g000002-0", "g000002-1"} {
		l.Happen(events.TurnSampledType, id, events.TurnSampled{LatencyMS: minutes(2), ToolCalls: calls})
	}
	after(10)
	if failed := l.Settle(); len(failed) != 4 || failed[0].Entity != "g000003-0" {
		t.Fatalf("of rollouts four of which have gone on: %v", decidertest.Names(failed))
	}
	after(16)
	l.Happen(events.ToolsCompletedType,
		"g000001-1", events.ToolsCompleted{Results: []events.ToolResult{{DurationMS: minutes(3)}}})
	l.Happen(events.RolloutFinishedType, "g000002-0", events.RolloutFinished{})
	l.Happen(events.StepFinishedType, "g000002-1", events.StepFinished{})
	for _, c := range []struct {
		at   int
		want []string
		says []string
	}{
		{17, []string{"rollout.failed g000001-0"}, []string{"its agent has used 2m0s",
			"the stage tools has not brought it on for 8m0s"}},
		{21, []string{"rollout.failed g000001-1"}, []string{"its agent has used 5m0s",
			"the stage generator has not brought it on for 5m0s"}},
		{26, []string{"rollout.failed g000002-0", "rollout.failed g000002-1"},
			[]string{"the stage scorer has not brought it on for 10m0s"}},
	} {
		if l.Settle(); !l.Wake.Equal(start.Add(time.Duration(c.at) * time.Minute)) {
			t.Errorf("it wakes after %s, not %d min", l.Wake.Sub(start), c.at)
		}
		after(c.at)
		facts := l.Settle()
		if got := decidertest.Names(facts); !slices.Equal(got, c.want) {
			t.Fatalf("after %d min: %v, want %v", c.at, got, c.want)
		}
		failed := decidertest.Data[events.RolloutFailed](t, facts[0])
		for _, text := range c.says {
			if failed.Class != events.ClassDeadline || !strings.Contains(failed.Message, text) {
				t.Errorf("after %d min it fails as %+v, without %q", c.at, failed, text)
			}
		}
	}
	if !l.Wake.IsZero() {
		t.Errorf("with nothing in flight it wakes at %s", l.Wake)
	}
}

// TestOutageIsNotOverdue: rollouts at a stage that waits for the end of an outage are not overdue,
// however long that takes. Those at others are, and so is one that does not go on behind it.
func TestOutageIsNotOverdue(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Limits.HopelessGroups = 0 })
	opened(l)
	l.Settle()
	start := l.Now
	after := func(n int) { l.Now = start.Add(time.Duration(n) * time.Minute) }
	waits := func(stage string) {
		l.Happen(events.StageWaitedType, stage, events.StageWaited{Outage: "store_unreachable", Since: start,
			Until: l.Now.Add(time.Minute)})
	}
	after(1)
	for _, id := range []string{"g000001-0", "g000001-1", "g000002-0"} {
		l.Happen(events.RolloutFinishedType, id, events.RolloutFinished{})
	}
	for n := 2; n <= 60; n++ {
		after(n)
		waits(events.StageScorer)
		for _, f := range l.Settle() {
			if n != 10 || slices.Contains([]string{"g000001-0", "g000001-1", "g000002-0"}, f.Entity) {
				t.Errorf("after %d min: %s", n, f.ID)
			}
		}
	}
	l.Happen(events.RolloutScoredType, "g000001-0", events.RolloutScored{Reward: 1})
	// the whole of limits.timeout behind the outage, which began before they were there
	if l.Settle(); !l.Wake.Equal(start.Add(71 * time.Minute)) {
		t.Errorf("it wakes after %s, not 71 min", l.Wake.Sub(start))
	}
	after(70)
	waits(events.EveryStage) // the plane was stopped
	l.Happen(events.StepScoredType, "g000001-1", events.StepScored{})
	after(80)
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("after a stop: %v", decidertest.Names(facts))
	}
	after(81)
	if got := decidertest.Names(l.Settle()); !slices.Equal(got,
		[]string{"rollout.failed g000001-1", "rollout.failed g000002-0"}) {
		t.Errorf("behind the outage: %v", got)
	}
	if v, ok := any(NewDecider(testRun, runfile.RunConfig{})).(pipeline.Timekeeper); !ok || v.Keeps(l.View()) {
		t.Error("nothing is in flight, and time is kept")
	}
}

// TestParkKeepsNothingAlive: a rollout that hangs ends, although inputs at its stage are parked for
// a moment again and again.
func TestParkKeepsNothingAlive(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Limits.HopelessGroups = 0 })
	opened(l)
	l.Settle()
	start := l.Now
	for n := 9; ; n += 9 {
		l.Now = start.Add(time.Duration(n) * time.Minute)
		if len(l.Settle()) > 0 {
			break
		}
		if n > 20 {
			t.Fatalf("nothing is overdue after %d min", n)
		}
		l.Happen(events.StageWaitedType, events.StageGenerator,
			events.StageWaited{Since: l.Now, Until: l.Now.Add(time.Minute)})
	}
}

func TestClosing(t *testing.T) {
	t.Run("by an operator", func(t *testing.T) {
		l := newLog(t, nil)
		opened(l)
		l.Settle()
		l.Happen(events.RolloutScoredType, "g000001-0", events.RolloutScored{})
		l.Happen(events.RunClosedType, testRun, events.RunClosed{})
		facts := l.Settle()
		if len(facts) != 7 {
			t.Errorf("%d facts, want the 7 rollouts in flight: %v", len(facts), decidertest.Names(facts))
		}
		for _, f := range facts {
			if r := decidertest.Data[events.RolloutFailed](t, f); f.Type != events.RolloutFailedType ||
				r.Class != events.ClassCancelled {
				t.Errorf("%s %s: %+v", f.Type, f.Entity, r)
			}
		}
		if !l.Wake.IsZero() {
			t.Errorf("a closed run wakes at %s", l.Wake)
		}
	})
	t.Run("while a group is half opened", func(t *testing.T) {
		l := newLog(t, nil)
		opened(l)
		l.Happen(events.GroupOpenedType, "g000001", events.GroupOpened{Task: "task-3", Size: 2})
		l.Happen(events.RolloutStartedType, "g000001-0",
			events.RolloutStarted{Group: "g000001", Deadline: l.Now.Add(time.Minute)})
		l.Happen(events.RolloutScoredType, "g000001-0", events.RolloutScored{})
		l.Happen(events.RunClosedType, testRun, events.RunClosed{})
		// Its scored member would be in flight for ever if the group could not complete.
		if got := decidertest.Names(l.Settle()); !slices.Equal(got,
			[]string{"rollout.started g000001-1", "rollout.failed g000001-1"}) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("after the last step", func(t *testing.T) {
		l := newLog(t, func(c *runfile.RunConfig) { c.Steps = 2 })
		opened(l)
		l.Settle()
		ready(l, "trainer", 1, groupIDs(1, 2)...)
		ready(l, "trainer", 2, groupIDs(3, 4)...)
		published(l, testRun, 1, 1)
		if facts := l.Settle(); len(facts) != 0 {
			t.Errorf("with all groups of the last step opened: %v", decidertest.Names(facts))
		}
		published(l, testRun, 2, 2)
		facts := l.Settle()
		if len(facts) == 0 || facts[0].Type != events.RunClosedType {
			t.Fatalf("after the last step: %v", decidertest.Names(facts))
		}
		// What was never scored is cancelled then.
		if len(facts) != 1+8 {
			t.Errorf("%v", decidertest.Names(facts))
		}
	})
	t.Run("a dropped group is replaced before the end", func(t *testing.T) {
		l := newLog(t, func(c *runfile.RunConfig) { c.Steps, c.Staleness.Max = 2, 5 })
		opened(l)
		if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 4)) {
			t.Errorf("two steps need four groups, opened %v", got)
		}
		l.Happen(events.GroupDroppedType, "g000003", events.GroupDropped{Feed: "trainer"})
		completed(l, "g000004", true, true)
		if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(5, 6)) {
			t.Errorf("in their place %v are opened", got)
		}
	})
}

func TestPause(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Happen(events.RunPausedType, testRun, events.RunPaused{})
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("a paused run: %v", decidertest.Names(facts))
	}
	l.Happen(events.RunResumedType, testRun, events.RunResumed{})
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 4)) {
		t.Errorf("a resumed run opens %v", got)
	}
	// Deadlines go on while a run is paused.
	l.Happen(events.RunPausedType, testRun, events.RunPaused{})
	l.Now = l.Now.Add(time.Hour)
	if facts := l.Settle(); len(facts) != 8 {
		t.Errorf("of a paused run's 8 rollouts %d are ended", len(facts))
	}
}
