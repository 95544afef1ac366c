package advantagecalculator

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage/projection"
)

const testRun = "r"

func newLog(t testing.TB, change func(*runfile.RunConfig)) *decidertest.Log {
	t.Helper()
	cfg := runfile.DefaultRunConfig()
	if change != nil {
		change(&cfg)
	}
	d, err := NewDecider(testRun, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return decidertest.New(t, testRun, d)
}

func open(l *decidertest.Log, group string, size int) {
	l.Happen(events.GroupOpenedType, group, events.GroupOpened{Task: "task", Size: size})
}

func scored(l *decidertest.Log, rollout string, reward float64) {
	l.Happen(events.RolloutScoredType, rollout, events.RolloutScored{Reward: reward})
}

func failed(l *decidertest.Log, rollout string) {
	l.Happen(events.RolloutFailedType, rollout, events.RolloutFailed{})
}

func invalidated(l *decidertest.Log, rollout string) {
	l.Happen(events.RolloutInvalidatedType, rollout, events.RolloutInvalidated{Reason: "leaked"})
}

// outcome of a member in a table: a reward, or failure.
var none = math.NaN()

func TestCompletes(t *testing.T) {
	for _, c := range []struct {
		name       string
		estimator  string
		rewards    []float64 // NaN: failed
		advantages []float64 // NaN: failed
		mean       float64
	}{
		// The figures of verl's and prime-rl's formulas; see package advantage.
		{"mean-centred", "mean_centred", []float64{1, 1, 1, 0, 0, 0, 0, 0},
			[]float64{.625, .625, .625, -.375, -.375, -.375, -.375, -.375}, .375},
		{"std-normalised", "std_normalised", []float64{1, 1, 1, 0, 0, 0, 0, 0},
			[]float64{1.207612, 1.207612, 1.207612, -.724567, -.724567, -.724567, -.724567, -.724567}, .375},
		{"all equal", "std_normalised", []float64{1, 1, 1, 1}, []float64{0, 0, 0, 0}, 1},
		{"a failed member does not count", "mean_centred", []float64{1, none, 0, 0.5}, []float64{.5, none, -.5, 0}, .5},
		{"one survivor", "mean_centred", []float64{none, 1, none}, []float64{none, 0, none}, 1},
		{"RLOO", "rloo", []float64{1, 1, 1, 0, 0, 0, 0, 0},
			[]float64{.714286, .714286, .714286, -.428571, -.428571, -.428571, -.428571, -.428571}, .375},
		{"leave-one-out", "leave_one_out", []float64{1, none, 0, 0}, []float64{1, none, -.707106, -.707106}, 1. / 3},
		{"REINFORCE++ leaves the rest to the feeder", "reinforce_plus_plus", []float64{1, none, 0},
			[]float64{1, none, 0}, .5},
		{"no survivor", "std_normalised", []float64{none, none}, []float64{none, none}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t, func(cfg *runfile.RunConfig) { cfg.Advantage.Estimator = c.estimator })
			open(l, "g000001", len(c.rewards))
			for i := len(c.rewards) - 1; i >= 0; i-- { // they end in any order
				if facts := l.Settle(); len(facts) != 0 {
					t.Fatalf("with %d members to come: %v", i+1, decidertest.Names(facts))
				}
				if math.IsNaN(c.rewards[i]) {
					failed(l, events.RolloutID("g000001", i))
				} else {
					scored(l, events.RolloutID("g000001", i), c.rewards[i])
				}
			}
			facts := l.Settle()
			if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.completed g000001"}) {
				t.Fatalf("got %v", got)
			}
			group := decidertest.Data[events.GroupCompleted](t, facts[0])
			if group.Task != "task" || group.Estimator != c.estimator || math.Abs(group.Mean-c.mean) > 1e-9 ||
				len(group.Members) != len(c.rewards) {
				t.Errorf("group %+v", group)
			}
			for i, m := range group.Members {
				if m.Rollout != events.RolloutID("g000001", i) || m.Failed != math.IsNaN(c.rewards[i]) {
					t.Errorf("member %d: %+v", i, m)
				}
				if m.Failed && (m.Reward != 0 || m.Advantage != 0) {
					t.Errorf("a failed member has figures: %+v", m)
				}
				if !m.Failed && (m.Reward != c.rewards[i] || m.Shaped != c.rewards[i] ||
					math.Abs(m.Advantage-c.advantages[i]) > 1e-6) {
					t.Errorf("member %d: %+v, want advantage %g", i, m, c.advantages[i])
				}
			}
		})
	}
}

func TestInvalidatedMembers(t *testing.T) {
	for name, happens := range map[string]func(l *decidertest.Log){
		"before its score":      func(l *decidertest.Log) { invalidated(l, "g000001-0"); scored(l, "g000001-0", 1) },
		"after its score":       func(l *decidertest.Log) { scored(l, "g000001-0", 1); invalidated(l, "g000001-0") },
		"after a failure":       func(l *decidertest.Log) { failed(l, "g000001-0"); invalidated(l, "g000001-0") },
		"instead of an outcome": func(l *decidertest.Log) { invalidated(l, "g000001-0") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, nil)
			open(l, "g000001", 3)
			scored(l, "g000001-1", 1)
			happens(l)
			scored(l, "g000001-2", 0)
			facts := l.Settle()
			if len(facts) != 1 {
				t.Fatalf("got %v", decidertest.Names(facts))
			}
			group := decidertest.Data[events.GroupCompleted](t, facts[0])
			want := []events.Member{{Rollout: "g000001-0", Failed: true},
				{Rollout: "g000001-1", Reward: 1, Shaped: 1, Advantage: .5}, {Rollout: "g000001-2", Advantage: -.5}}
			if !slices.Equal(group.Members, want) {
				t.Errorf("members %+v, want %+v", group.Members, want)
			}
		})
	}
}

// Outsiders invalidate what they like; what is no member completes nothing.
func TestForeignMembers(t *testing.T) {
	l := newLog(t, nil)
	open(l, "g000001", 2)
	for _, id := range []string{"g000001-2", "g000001-77", "g000001-01", "g000001-", "g000001",
		"g000001-0-1", "g000009-0"} {
		invalidated(l, id)
	}
	scored(l, "g000001-0", 1)
	if facts := l.Settle(); len(facts) != 0 {
		t.Fatalf("with one of two members: %v", decidertest.Names(facts))
	}
	scored(l, "g000001-1", 0)
	if facts := l.Settle(); len(facts) != 1 {
		t.Errorf("got %v", decidertest.Names(facts))
	}
}

func TestShuffledRewards(t *testing.T) {
	moved, sums := false, 0.0
	for n := range int64(20) {
		group := events.GroupID(n + 1)
		complete := func(shuffle bool) events.GroupCompleted {
			l := newLog(t, func(cfg *runfile.RunConfig) { cfg.Advantage.ShuffleRewards = shuffle; cfg.Seed = 3 })
			open(l, group, 4)
			for i := range 4 {
				scored(l, events.RolloutID(group, i), float64(i))
			}
			return decidertest.Data[events.GroupCompleted](t, l.Settle()[0])
		}
		straight, shuffled, again := complete(false), complete(true), complete(true)
		if !slices.Equal(shuffled.Members, again.Members) {
			t.Errorf("%s: two shuffles differ", group)
		}
		var a, b []float64
		for i := range 4 {
			if shuffled.Members[i].Reward != float64(i) {
				t.Errorf("%s: member %d has the reward %g", group, i, shuffled.Members[i].Reward)
			}
			a, b = append(a, straight.Members[i].Advantage), append(b, shuffled.Members[i].Advantage)
			sums += shuffled.Members[i].Advantage * (float64(i) - 1.5)
		}
		moved = moved || !slices.Equal(a, b)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			t.Errorf("%s: the group has other advantages: %v, want %v", group, b, a)
		}
	}
	// Unshuffled, reward and advantage go together: 20 groups × 5. Shuffled, they have
	// nothing to do with each other.
	if !moved || math.Abs(sums) > 50 {
		t.Errorf("shuffled advantages follow the rewards: %g of 100", sums)
	}
}

func TestStateShrinks(t *testing.T) {
	l := newLog(t, nil)
	for n := range int64(50) {
		group := events.GroupID(n + 1)
		open(l, group, 2)
		scored(l, group+"-0", 1)
		failed(l, group+"-1")
		if facts := l.Settle(); len(facts) != 1 {
			t.Fatalf("%s: %v", group, decidertest.Names(facts))
		}
		invalidated(l, group+"-0") // too late for the group
	}
	for g, err := range projection.Scan[group](l.View(), openGroups) {
		t.Errorf("%s is left, %v", g.ID, err)
	}
	if facts := l.Settle(); len(facts) != 0 {
		t.Errorf("again: %v", decidertest.Names(facts))
	}
}

func TestUnknownEstimator(t *testing.T) {
	cfg := runfile.DefaultRunConfig()
	cfg.Advantage.Estimator = "guess"
	if _, err := Deciders(testRun, cfg); err == nil {
		t.Error("an unknown estimator was accepted")
	}
	for _, name := range runfile.Estimators {
		cfg.Advantage.Estimator = name
		if _, err := Deciders(testRun, cfg); err != nil {
			t.Error(fmt.Errorf("%s: %w", name, err))
		}
	}
}
