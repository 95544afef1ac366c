package advantagecalculator

import (
	"math"
	"testing"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage/projection"
)

func remembering(cfg *runfile.RunConfig) {
	cfg.Advantage = runfile.Advantage{Estimator: "rae", Params: map[string]any{"decay": 0.5}}
}

// ended lets a whole group of a task end; a reward of NaN is a failure.
func ended(l *decidertest.Log, n int64, task string, rewards ...float64) {
	id := events.GroupID(n)
	l.Happen(events.GroupOpenedType, id, events.GroupOpened{Task: task, Size: len(rewards)})
	for i, r := range rewards {
		if math.IsNaN(r) {
			failed(l, events.RolloutID(id, i))
		} else {
			scored(l, events.RolloutID(id, i), r)
		}
	}
}

func advantagesOf(t *testing.T, facts []events.Event) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{}
	for _, fact := range facts {
		for _, m := range decidertest.Data[events.GroupCompleted](t, fact).Members {
			all[fact.Entity] = append(all[fact.Entity], m.Advantage)
		}
	}
	return all
}

// TestBaselineOfATask: each rollout is compared with what the task's earlier ones left, also when
// several groups of a task end together, and no other task's rewards move it.
func TestBaselineOfATask(t *testing.T) {
	l := newLog(t, remembering)
	ended(l, 1, "hard", 0, 1)          // 0 → 0 → 0.5
	ended(l, 2, "easy", 1, none, 1)    // 0 → 0.5 → 0.75
	ended(l, 3, "hard", 1, 1)          // 0.5 → 0.75 → 0.875
	ended(l, 4, "unlucky", none, none) // stays 0
	got := advantagesOf(t, l.Settle())
	ended(l, 5, "easy", 0.75)
	ended(l, 6, "unlucky", 1)
	for id, a := range advantagesOf(t, l.Settle()) {
		got[id] = a
	}
	for id, want := range map[string][]float64{
		"g000001": {0, 1}, "g000002": {1, 0, 0.5}, "g000003": {0.5, 0.25}, "g000004": {0, 0},
		"g000005": {0}, "g000006": {1},
	} {
		t.Run(id, func(t *testing.T) {
			for i := range want {
				if len(got[id]) != len(want) || math.Abs(got[id][i]-want[i]) > 1e-9 {
					t.Errorf("%s: advantages %v, want %v", id, got[id], want)
					break
				}
			}
		})
	}
}

// TestBaselineOfForks: groups that begin half way are compared with those that
// begin at the same place.
func TestBaselineOfForks(t *testing.T) {
	l := newLog(t, remembering)
	fork := func(n int64, turn int, rewards ...float64) {
		id := events.GroupID(n)
		l.Happen(events.GroupOpenedType, id, events.GroupOpened{Task: "hard", Size: len(rewards),
			Origin: &events.Origin{Rollout: "g000001-0", Turn: turn}})
		for i, r := range rewards {
			scored(l, events.RolloutID(id, i), r)
		}
	}
	ended(l, 1, "hard", 0, 1) // 0 → 0 → 0.5
	fork(2, 3, 1, 1)          // 0 → 0.5 → 0.75
	fork(3, 3, 1)             // 0.75
	fork(4, 5, 1)             // 0
	ended(l, 5, "hard", 1)    // 0.5
	got := advantagesOf(t, l.Settle())
	for id, want := range map[string]float64{"g000002": 1, "g000003": 0.25, "g000004": 1, "g000005": 0.5} {
		t.Run(id, func(t *testing.T) {
			if len(got[id]) == 0 || math.Abs(got[id][0]-want) > 1e-9 {
				t.Errorf("%s: advantages %v, want %v first", id, got[id], want)
			}
		})
	}
}

// A baseline is a projection: who folds the log from its beginning has it.
func TestBaselineSurvivesARestart(t *testing.T) {
	l := newLog(t, remembering)
	ended(l, 1, "t", 0, 1)
	l.Settle()
	ended(l, 2, "t", 1, 1)
	l.Settle()
	again := newLog(t, remembering)
	for _, e := range l.Events {
		again.Happen(e.Type, e.Entity, e.Data)
	}
	for _, log := range []*decidertest.Log{l, again} {
		if b, ok, err := projection.Get[float64](log.View(), baselines+"t"); b != 0.875 || !ok || err != nil {
			t.Errorf("the baseline is %g, %v, %v", b, ok, err)
		}
	}
}

// Estimators that remember nothing keep nothing.
func TestNoBaselineWithoutNeed(t *testing.T) {
	l := newLog(t, nil)
	ended(l, 1, "t", 0, 1)
	l.Settle()
	if _, ok, _ := projection.Get[float64](l.View(), baselines+"t"); ok {
		t.Error("there is a baseline")
	}
}

// TestReplayComesToTheSameBaselines: on a real log, decisions made again come out the same,
// and a forged one does not.
func TestReplayComesToTheSameBaselines(t *testing.T) {
	for _, forged := range []bool{false, true} {
		log := natstest.Log(t)
		if err := log.Streams.EnsureRun(t.Context(), testRun); err != nil {
			t.Fatal(err)
		}
		l := newLog(t, remembering)
		ended(l, 1, "t", 0, 1)
		l.Settle()
		ended(l, 2, "t", 1, 1)
		facts := l.Settle()
		if forged { // as a calculator would have decided that lost its baselines
			advantages, _ := advantage.RAE([]float64{1, 1}, 0, 0.5)
			c := decidertest.Data[events.GroupCompleted](t, facts[0])
			for i := range c.Members {
				c.Members[i].Advantage = advantages[i]
			}
			fact, err := events.New(testRun, events.GroupCompletedType, facts[0].Entity, "0", c)
			if err != nil {
				t.Fatal(err)
			}
			l.Events[len(l.Events)-1].Data = fact.Data
		}
		record(t, log, l)
		cfg := runfile.DefaultRunConfig()
		remembering(&cfg)
		d, err := NewDecider(testRun, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var differences []pipeline.Difference
		again := pipeline.Verification{
			Log: log.Reader, Run: testRun,
			Deciders: map[string]map[string]pipeline.Decider{topology.AdvantageCalculator: {"": d}},
			Report:   func(d pipeline.Difference) { differences = append(differences, d) },
		}
		checked, err := again.Verify(t.Context())
		if err != nil || checked[topology.AdvantageCalculator] != 2 || (len(differences) > 0) != forged {
			t.Errorf("forged %v: %v checked, %v, differences %v", forged, checked, err, differences)
		}
	}
}

// record puts what happened in memory onto a real log, decided facts as the runtime states them.
func record(t *testing.T, log *eventlog.Log, l *decidertest.Log) {
	t.Helper()
	tails := map[string]uint64{}
	for _, e := range l.Events {
		e.Prev = tails[e.Chain()]
		if e.Type == events.GroupCompletedType {
			e.Source, e.AsOf, e.DecidedAt = topology.AdvantageCalculator, e.Seq-1, e.Time
		}
		stored, _, err := log.Appender.Append(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		tails[e.Chain()] = stored.Seq
	}
}
