package evaluation

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

func ofTask(task string, prefix string, rewards ...float64) (list []Attempt) {
	for i, r := range rewards {
		list = append(list, Attempt{Rollout: fmt.Sprintf("%s-%s-%d", task, prefix, i), Task: task, Reward: r})
	}
	return list
}

func reward(a Attempt) float64 { return a.Reward }

// TestCompareArms compares p with an enumeration of all divisions of both tasks, and the difference
// with the weighted means by hand. A task of one side alone changes nothing.
func TestCompareArms(t *testing.T) {
	x, y := []float64{1, 2, 4, 0, 3}, []float64{5, 7, 6, 9}
	a := append(ofTask("x", "a", x[:2]...), ofTask("y", "a", y[:3]...)...)
	b := append(ofTask("x", "b", x[2:]...), ofTask("y", "b", y[3:]...)...)
	a = append(a, ofTask("z", "a", 100)...)
	d, err := CompareArms(a, b, reward, Options{Resamples: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	statistic := func(values []float64, first uint) float64 { // Σ of the first side − its size times the mean
		var total, mine float64
		for i, v := range values {
			total += v
			if first>>i&1 == 1 {
				mine += v
			}
		}
		return mine - float64(bits.OnesCount(first))*total/float64(len(values))
	}
	observed := statistic(x, 0b11) + statistic(y, 0b111)
	hits, all := 0, 0
	for fx := range uint(32) {
		for fy := range uint(16) {
			if bits.OnesCount(fx) == 2 && bits.OnesCount(fy) == 3 {
				all++
				if math.Abs(statistic(x, fx)+statistic(y, fy)) >= math.Abs(observed)-1e-9 {
					hits++
				}
			}
		}
	}
	if want := float64(hits) / float64(all); math.Abs(d.P-want) > 0.005 {
		t.Errorf("p = %g, want %g (%d of %d)", d.P, want, hits, all)
	}
	wx, wy := 2*3/5., 3*1/4.
	if want := (wx*(1.5-7./3) + wy*(6-9)) / (wx + wy); math.Abs(d.Difference.Value-want) > 1e-12 ||
		math.Abs(d.A-d.B-want) > 1e-12 || d.Tasks != 2 || d.Losses != 2 {
		t.Errorf("%+v, want a difference of %g", d, want)
	}
	if again, _ := CompareArms(b, a, reward, Options{Resamples: 200_000}); math.Abs(again.Difference.Value+
		d.Difference.Value) > 1e-12 {
		t.Errorf("the other way round it is %+v", again)
	}
	if _, err := CompareArms(ofTask("x", "a", 1, 2), ofTask("y", "b", 3), reward,
		Options{}); !errors.Is(err, ErrApart) {
		t.Errorf("no task of both: %v", err)
	}
}

// TestCompareArmsHoldsItsLevel: of versions that are the same, at most some one in twenty is found
// to differ and left out by the interval, also where the sides have the tasks in other proportions;
// one that is better is found.
func TestCompareArmsHoldsItsLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	const trials = 400
	found, outside, better := 0, 0, 0
	for range trials {
		for _, ahead := range []float64{0, 0.4} {
			var a, b []Attempt
			for i := range 120 {
				task := i % 3
				one := Attempt{Rollout: fmt.Sprint(i), Task: fmt.Sprint(task)}
				mine := rng.Float64() < []float64{0.1, 0.3, 0.5}[task]
				chance := []float64{0.1, 0.4, 0.55}[task]
				if mine {
					chance += ahead
				}
				if rng.Float64() < chance {
					one.Reward = 1
				}
				if mine {
					a = append(a, one)
				} else {
					b = append(b, one)
				}
			}
			d, err := CompareArms(a, b, reward, Options{Resamples: 400, Seed: rng.Int64()})
			switch {
			case err != nil:
				t.Fatal(err)
			case ahead > 0 && d.Verdict == Better:
				better++
			case ahead == 0 && d.Verdict != NotShown:
				found++
			}
			if d.Difference.Low > ahead || d.Difference.High < ahead {
				outside++
			}
		}
	}
	if found > trials*8/100 || outside > 2*trials*9/100 || better < trials*80/100 {
		t.Errorf("of %d trials %d without a difference showed one, %d of twice as many intervals leave the truth out, and %d differences were found",
			trials, found, outside, better)
	}
}

// TestSides: a rollout counts for the version that its name gives it, if that one sampled it and it
// began since the promotion.
func TestSides(t *testing.T) {
	p := events.WeightsPromoted{Version: 12, Share: 0.5, Before: 11}
	f := NewRecorded("r")
	began := time.Unix(1000, 0)
	seq := uint64(0)
	take := func(typ events.Type, id, ordinal string, at time.Time, data any) {
		t.Helper()
		seq++
		e, err := events.New("r", typ, id, ordinal, data)
		if err != nil {
			t.Fatal(err)
		}
		e.Seq, e.Time = seq, at
		if err := f.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	want := map[int64]int{}
	for i := range 40 {
		id, at := fmt.Sprintf("g%06d-0", i+1), began
		mine := p.VersionFor("r", id)
		sampled := mine
		switch i % 5 {
		case 0:
			at = began.Add(-time.Second)
		case 1:
			sampled = 10 // by a server that had not heard of it
		case 2:
			sampled = -1 // by one that names no version
			want[mine]++
		default:
			want[mine]++
		}
		take(events.RolloutStartedType, id, "0", at, events.RolloutStarted{Group: id[:7], Task: "a", PolicyVersion: 12})
		take(events.TurnSampledType, id, "0", at, events.TurnSampled{PolicyVersion: sampled, FinishReason: "stop"})
		take(events.RolloutFailedType, id, "0", at, events.RolloutFailed{Stage: events.StageTools,
			Class: events.ClassSandbox})
	}
	version, against := f.Sides(p, began)
	if len(version) != want[12] || len(against) != want[11] || want[12] == 0 || want[11] == 0 {
		t.Errorf("%d and %d rollouts, want %v", len(version), len(against), want)
	}
}

// TestSidesOfQueries: each query is a task of its own, and is compared as one of
// the task that it works on.
func TestSidesOfQueries(t *testing.T) {
	p := events.WeightsPromoted{Version: 12, Share: 0.5, Before: 11}
	f := NewRecorded("r")
	seq := uint64(0)
	take := func(typ events.Type, id string, data any) {
		t.Helper()
		seq++
		e, err := events.New("r", typ, id, "0", data)
		if err != nil {
			t.Fatal(err)
		}
		e.Seq, e.Time = seq, time.Unix(1000, 0)
		if err := f.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 24 {
		group, query := fmt.Sprintf("g%06d", i+1), fmt.Sprintf("q%d", i)
		take(events.QuerySubmittedType, query, events.QuerySubmitted{Instruction: "Mend it.",
			Task: []string{"a", "b"}[i%2]})
		take(events.RolloutStartedType, group+"-0", events.RolloutStarted{Group: group, Task: query, PolicyVersion: 12})
		take(events.RolloutScoredType, group+"-0", events.RolloutScored{Reward: float64(i % 3)})
	}
	version, against := f.Sides(p, time.Unix(1000, 0))
	d, err := CompareArms(version, against, func(a Attempt) float64 { return a.Reward }, Options{Seed: 1})
	if err != nil || d.Tasks != 2 {
		t.Errorf("%d and %d rollouts are compared at %d tasks, want 2: %v", len(version), len(against), d.Tasks, err)
	}
}
