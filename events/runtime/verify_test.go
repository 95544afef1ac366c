package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage/projection"
)

// decidedRunLog is a log with a run that a decider has worked on: 20 groups, one of them by the clock.
func decidedRunLog(t *testing.T) *eventlog.Log {
	t.Helper()
	log := natstest.Log(t)
	openRun(t, log, testRun)
	s := deciding(t, testEnv(t, log, "a"), answering(answerer{estimator: "one"}))
	openGroup(t, log, 1, time.Now().Add(300*time.Millisecond).Format(time.RFC3339Nano))
	for n := range int64(19) {
		openGroup(t, log, n+2, "now")
	}
	for n := range int64(20) {
		answer(t, log, n+1)
	}
	s.end(t)
	return log
}

func verify(t *testing.T, log *eventlog.Log, d Decider) (checked int, differences []Difference) {
	t.Helper()
	checked, err := Verify(t.Context(), log, testRun, events.AdvantageCalculator, "", d, func(d Difference) { differences = append(differences, d) })
	if err != nil {
		t.Fatal(err)
	}
	return checked, differences
}

func TestVerify(t *testing.T) {
	log := decidedRunLog(t)
	checked, differences := verify(t, log, answerer{estimator: "one"})
	if checked != 20 || len(differences) != 0 {
		t.Errorf("checked %d of 20 facts: %v", checked, differences)
	}
	checked, differences = verify(t, log, answerer{estimator: "two"})
	if checked != 20 || len(differences) != 20 {
		t.Errorf("with another configuration %d of %d facts differ, want all 20", len(differences), checked)
	}
	for _, d := range differences {
		if d.Field != "data" || d.Sequence == 0 || d.Recorded == d.Recomputed {
			t.Errorf("difference %+v", d)
		}
	}
}

// Each of these is a fact that was planted on the log; none may pass.
func TestVerifyFindsWhatWasPlanted(t *testing.T) {
	log := decidedRunLog(t)
	last := lastSeq(t, log)
	decided := func(n int64, data any, asOf uint64, at time.Time) events.Event {
		e := must(events.New(testRun, events.GroupCompletedType, events.GroupID(n), "0", data))
		e.Source, e.AsOf, e.DecidedAt = events.AdvantageCalculator, asOf, at
		return e
	}
	right := events.GroupCompleted{Task: "planted", Estimator: "one"}
	now := time.Now()
	for name, plant := range map[string]struct {
		event func(opened events.Event) events.Event
		field string
	}{
		"other data": {func(opened events.Event) events.Event {
			return decided(0, events.GroupCompleted{Task: "planted", Estimator: "one", Mean: float64(opened.Seq), Members: []events.Member{{Reward: 1}}}, opened.Seq, now)
		}, "data"},
		"nothing to decide yet": {func(opened events.Event) events.Event { return decided(0, right, opened.Seq-1, now) }, "event"},
		"long ago":              {func(events.Event) events.Event { return decided(0, right, 0, now) }, "event"},
		"decided on itself":     {func(opened events.Event) events.Event { return decided(0, right, opened.Seq+1, now) }, "as_of"},
		"from the future":       {func(events.Event) events.Event { return decided(0, right, 1<<40, now) }, "as_of"},
		"no clock":              {func(opened events.Event) events.Event { return decided(0, right, opened.Seq, time.Time{}) }, "decided_at"},
		"another event": {func(opened events.Event) events.Event {
			e := must(events.New(testRun, events.GroupDroppedType, opened.Entity, "x", events.GroupDropped{}))
			e.Source, e.AsOf, e.DecidedAt = events.AdvantageCalculator, opened.Seq, now
			return e
		}, "event"},
	} {
		t.Run(name, func(t *testing.T) {
			n := int64(100 + last)
			last++
			opened := openGroup(t, log, n, "planted")
			e := plant.event(opened)
			e.Entity, e.Prev = opened.Entity, opened.Seq
			e.ID = events.ID(testRun, e.Type, e.Entity, "0")
			stored, _, err := log.Append(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			_, differences := verify(t, log, answerer{estimator: "one"})
			found := false
			for _, d := range differences {
				found = found || d.Sequence == stored.Seq && d.Field == plant.field
			}
			if !found {
				t.Errorf("not found: %+v", differences)
			}
		})
	}
	// What others state is not the decider's.
	foreign := decided(1000, right, 1, now)
	foreign.Source = "outside/somebody"
	if _, _, err := log.Append(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	before, _ := verify(t, log, answerer{estimator: "one"})
	if want := 20 + 7; before != want {
		t.Errorf("checked %d facts, want %d", before, want)
	}
}

// stamper completes what answerers decide, as a feeder does.
type stamper struct{ answerer }

func (s stamper) Complete(_ context.Context, v projection.View, fact events.Event) (events.Event, error) {
	last, _, err := projection.Get[uint64](v, "last")
	if err != nil {
		return fact, err
	}
	completed, err := events.Data[events.GroupCompleted](fact)
	if err != nil {
		return fact, err
	}
	completed.Task = fmt.Sprintf("%s-%d", s.estimator, last)
	fact.Data, err = json.Marshal(completed)
	return fact, err
}

func TestVerifyCompletedFacts(t *testing.T) {
	log := natstest.Log(t)
	openRun(t, log, testRun)
	s := deciding(t, testEnv(t, log, "a"), Deciding{Name: events.AdvantageCalculator, New: func(string, events.RunConfig) (map[string]Decider, error) {
		return map[string]Decider{"": stamper{answerer{estimator: "one"}}}, nil
	}})
	openGroup(t, log, 1, "")
	openGroup(t, log, 2, "")
	completed, err := events.Data[events.GroupCompleted](answer(t, log, 2))
	if err != nil || completed.Task == "" {
		t.Errorf("the fact was not completed: %+v, %v", completed, err)
	}
	answer(t, log, 1)
	s.end(t)
	if checked, differences := verify(t, log, stamper{answerer{estimator: "one"}}); checked != 2 || len(differences) != 0 {
		t.Errorf("checked %d: %v", checked, differences)
	}
}
