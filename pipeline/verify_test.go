package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

// decidedRunLog is a log with a run that a decider has worked on: 20 groups,
// one of them by the clock.
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
	return verifyWithin(t, log, d, windowEvents)
}

// verifyWithin verifies with a window of another size. Whatever it is, the same must come out.
func verifyWithin(t *testing.T, log *eventlog.Log, d Decider, window int) (checked int, differences []Difference) {
	t.Helper()
	v := &Verification{
		Log: log.Reader, Run: testRun, Deciders: map[string]map[string]Decider{topology.AdvantageCalculator: {"": d}},
		Report: func(d Difference) { differences = append(differences, d) },
	}
	by, err := v.verify(t.Context(), window)
	if err != nil {
		t.Fatal(err)
	}
	return by[topology.AdvantageCalculator], differences
}

// windows are sizes of the window with which all is in time, some is late, and nearly all is.
var windows = []int{windowEvents, 4, 0}

func TestVerify(t *testing.T) {
	log := decidedRunLog(t)
	for _, window := range windows {
		checked, differences := verifyWithin(t, log, answerer{estimator: "one"}, window)
		if checked != 20 || len(differences) != 0 {
			t.Errorf("window %d: checked %d of 20 facts: %v", window, checked, differences)
		}
		checked, differences = verifyWithin(t, log, answerer{estimator: "two"}, window)
		if checked != 20 || len(differences) != 20 {
			t.Errorf("window %d: with another configuration %d of %d facts differ, want all 20", window,
				len(differences), checked)
		}
		for _, d := range differences {
			if d.Field != "data.estimator" || d.Sequence == 0 || d.Recorded != `"one"` || d.Recomputed != `"two"` {
				t.Errorf("window %d: difference %+v", window, d)
			}
		}
	}
}

// Each of these is a fact that was planted on the log; none may pass.
func TestVerifyFindsWhatWasPlanted(t *testing.T) {
	log := decidedRunLog(t)
	last := lastSeq(t, log)
	decided := func(n int64, data any, asOf uint64, at time.Time) events.Event {
		e := must(events.New(testRun, events.GroupCompletedType, events.GroupID(n), "0", data))
		e.Source, e.AsOf, e.DecidedAt = topology.AdvantageCalculator, asOf, at
		return e
	}
	right := events.GroupCompleted{Task: "planted", Estimator: "one"}
	now := time.Now()
	for name, plant := range map[string]struct {
		event func(opened events.Event) events.Event
		field string
	}{
		"other data": {func(opened events.Event) events.Event {
			return decided(0, events.GroupCompleted{Task: "planted", Estimator: "one", Mean: float64(opened.Seq),
				Members: []events.Member{{Reward: 1}}}, opened.Seq, now)
		}, "data.members"},
		"nothing to decide yet": {func(opened events.Event) events.Event {
			return decided(0, right, opened.Seq-1,
				now)
		}, "event"},
		"long ago": {func(events.Event) events.Event { return decided(0, right, 0, now) }, "event"},
		"decided on itself": {func(opened events.Event) events.Event {
			return decided(0, right, opened.Seq+1,
				now)
		}, "as_of"},
		"from the future": {func(events.Event) events.Event { return decided(0, right, 1<<40, now) }, "as_of"},
		"no clock": {func(opened events.Event) events.Event {
			return decided(0, right, opened.Seq,
				time.Time{})
		}, "decided_at"},
		"no decider of the run": {func(opened events.Event) events.Event {
			e := decided(0, right, opened.Seq, now)
			e.Source = topology.AdvantageCalculator + "/ghost"
			return e
		}, "source"},
		"another event": {func(opened events.Event) events.Event {
			e := must(events.New(testRun, events.GroupDroppedType, opened.Entity, "x", events.GroupDropped{}))
			e.Source, e.AsOf, e.DecidedAt = topology.AdvantageCalculator, opened.Seq, now
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
			stored, _, err := log.Appender.Append(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			for _, window := range windows {
				_, differences := verifyWithin(t, log, answerer{estimator: "one"}, window)
				if !slices.ContainsFunc(differences, func(d Difference) bool {
					return d.Sequence == stored.Seq &&
						d.Field == plant.field
				}) {
					t.Errorf("window %d: not found: %+v", window, differences)
				}
			}
		})
	}
	// What others state is not the decider's.
	foreign := decided(1000, right, 1, now)
	foreign.Source = "outside/somebody"
	if _, _, err := log.Appender.Append(t.Context(), foreign); err != nil {
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
	s := deciding(t, testEnv(t, log, "a"), Deciding{Name: topology.AdvantageCalculator,
		New: func(string, runfile.RunConfig) (map[string]Decider, error) {
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
	for _, window := range windows {
		if checked, differences := verifyWithin(t, log, stamper{answerer{estimator: "one"}}, window); checked != 2 ||
			len(differences) != 0 {
			t.Errorf("window %d: checked %d: %v", window, checked, differences)
		}
	}
}

// TestVerifyLateFact: a fact whose decision lies further back than the window is
// checked like the others.
func TestVerifyLateFact(t *testing.T) {
	log := natstest.Log(t)
	openRun(t, log, testRun)
	opened := openGroup(t, log, 1, "")
	for n := range int64(40) {
		openGroup(t, log, n+2, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
	}
	at := time.Now()
	late := must(events.New(testRun, events.GroupCompletedType, opened.Entity,
		"0", events.GroupCompleted{Estimator: "one", Mean: float64(opened.Seq)}))
	late.Prev, late.Source, late.AsOf, late.DecidedAt = opened.Seq, topology.AdvantageCalculator, opened.Seq, at
	if _, _, err := log.Appender.Append(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	var applied atomic.Int64
	d := answerer{estimator: "one", applied: &applied}
	if checked, differences := verifyWithin(t, log, d, windowEvents); checked != 1 ||
		len(differences) > 0 || applied.Load() != 43 {
		t.Errorf("checked %d in one read, which folded %d events: %v", checked, applied.Load(), differences)
	}
	if checked, differences := verifyWithin(t, log, d, 10); checked != 1 || len(differences) > 0 ||
		applied.Load() != 2*43+2 {
		t.Errorf("checked %d in two reads, which folded %d events: %v", checked, applied.Load()-43, differences)
	}
}

func TestDifferences(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, c := range []struct{ recorded, recomputed, want string }{
		{`{"a":1}`, `{"a":1}`, ""},
		{`{"a":1}`, `{"a":2}`, "data.a: 1 → 2"},
		{`{"a":0.1}`, `{"a":0.10000000000000001}`, "data.a: 0.1 → 0.10000000000000001"},
		{`{"a":[1,{"b":"x"}],"c":1}`, `{"a":[1,{"b":"y"}]}`, `data.a[1].b: "x" → "y"; data.c: 1 → absent`},
		{`{"a":[1]}`, `{"a":[1,null]}`, "data.a[1]: absent → null"},
		{`{"a":1}`, `{"a": 1}`, `data: {"a":1} → {"a": 1}`},
		{`no JSON`, `{}`, "data: no JSON → {}"},
		{`{"a":{}}`, `{"a":[]}`, "data.a: {} → []"},
		{`"` + long + `"`, `1`, `data: "` + long[:299] + "… (1002 bytes) → 1"},
	} {
		var got []string
		for _, d := range Differences(events.Event{Data: []byte(c.recorded)},
			events.Event{Data: []byte(c.recomputed)}) {
			got = append(got, d.Field+": "+d.Recorded+" → "+d.Recomputed)
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%.80s and %.80s: %s", c.recorded, c.recomputed, text)
		}
	}
	many := "[" + strings.Repeat("1,", 1000) + "1]"
	if n := len(Differences(events.Event{Data: []byte(many)}, events.Event{Data: []byte("[]")})); n != mostDifferences {
		t.Errorf("%d differences of one fact", n)
	}
}
