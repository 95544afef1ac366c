package behaviour

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// chains are the events of random rollouts, each in its own order, and the end of the group
// that all of them are in.
func chains(t testing.TB, rng *rand.Rand, rollouts int) (opened events.Event, all [][]events.Event,
	completed events.Event) {
	run := &written{TB: t}
	run.open(func(c *runfile.RunConfig) {
		c.Shaping.Length = &runfile.LengthPenalty{Turns: 1}
		c.Scorer = runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": -0.3}}
	})
	var members []events.Member
	for i := range rollouts {
		id := events.RolloutID("g000001", i)
		w := &written{TB: t}
		w.start(id, rng.Int64N(4))
		for range rng.IntN(6) {
			w.sampled(id, events.TurnSampled{
				CompletionTokens: rng.IntN(5000), SegmentCause: fmt.Sprint("cause ", rng.IntN(2*maxNames)),
				Reasoning: &events.Reasoning{Text: string(make([]byte, rng.IntN(900)))},
			})
			w.answer(id, []string{"", "a"}[rng.IntN(2)], "grep", []string{"write", "!read_file"}[rng.IntN(2)])
		}
		reward := rng.NormFloat64() * math.Pow(10, float64(rng.IntN(30))) // whose sum depends on their order
		w.event(events.RolloutFinishedType, id, events.RolloutFinished{StopReason: fmt.Sprint("reason ",
			rng.IntN(2*maxNames)), Samples: rng.IntN(4)})
		if rng.IntN(8) == 0 {
			w.event(events.RolloutFailedType, id, events.RolloutFailed{})
		} else {
			w.event(events.RolloutScoredType, id, events.RolloutScored{Reward: reward,
				Components: map[string]float64{"reward": rng.Float64(), "effort": rng.Float64()}})
		}
		members = append(members, events.Member{Rollout: id, Reward: reward, Shaped: reward - rng.Float64()})
		all = append(all, w.list)
	}
	run.event(events.GroupCompletedType, "g000001", events.GroupCompleted{Members: members})
	return run.list[0], all, run.list[1]
}

// interleaved takes the next event of a random chain until all are taken.
func interleaved(rng *rand.Rand, all [][]events.Event) (list []events.Event) {
	var turns []int
	for i, chain := range all {
		for range chain {
			turns = append(turns, i)
		}
	}
	rng.Shuffle(len(turns), func(i, k int) { turns[i], turns[k] = turns[k], turns[i] })
	next := make([]int, len(all))
	for _, i := range turns {
		list = append(list, all[i][next[i]])
		next[i]++
	}
	return list
}

// TestOrder: rows do not depend on the order in which events of different rollouts come, whether or
// not versions are put together.
func TestOrder(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 7))
		opened, all, completed := chains(t, rng, 40)
		var first []Row
		for try := range 4 {
			f := folded(t, slices.Concat([]events.Event{opened}, interleaved(rng, all), []events.Event{completed}))
			rows := slices.Concat(f.Rows(), f.RowsOf(2), f.RowsOf(1))
			if try == 0 {
				first = rows
			}
			if !reflect.DeepEqual(rows, first) {
				t.Fatalf("seed %d: %s", seed, difference(rows, first))
			}
		}
		if len(first) != 4+2+1 || first[6].Started != 40 || first[4].Started != first[0].Started+first[1].Started {
			t.Errorf("seed %d: %d rows: %+v", seed, len(first), first)
		}
	}
}

func difference(got, want []Row) string {
	for i := range got {
		for k := range reflect.TypeFor[Row]().NumField() {
			a, b := reflect.ValueOf(got[i]).Field(k).Interface(), reflect.ValueOf(want[i]).Field(k).Interface()
			if !reflect.DeepEqual(a, b) {
				return fmt.Sprintf("row %d, %s: %s, then %s", i,
					reflect.TypeFor[Row]().Field(k).Name, spelled(a), spelled(b))
			}
		}
	}
	return "they differ"
}

// TestMemory: what is kept beside the books does not grow with the rollouts that are over.
func TestMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	opened, all, completed := chains(t, rng, 500)
	f := folded(t, slices.Concat([]events.Event{opened}, interleaved(rng, all), []events.Event{completed}))
	if len(f.rollouts.open) > 0 || len(f.versions) != 4 {
		t.Errorf("%d rollouts are kept, and %d versions", len(f.rollouts.open), len(f.versions))
	}
	for version, tally := range f.versions {
		if len(tally.stops) != maxNames+1 || len(tally.newSamples) != maxNames+1 || tally.stops[otherName] == 0 {
			t.Errorf("version %d: %d stop reasons, %d causes, %d others", version, len(tally.stops),
				len(tally.newSamples), tally.stops[otherName])
		}
	}
	var s spread
	for range 50_000 {
		s.add(rng.Int64N(1 << (1 + rng.IntN(62))))
	}
	if len(s.bins) > 14_336 {
		t.Errorf("%d bins", len(s.bins))
	}
	long := count(nil, string(make([]byte, 10*maxName)), 1)
	for name := range long {
		if len(name) > maxName {
			t.Errorf("a name of %d bytes", len(name))
		}
	}
}

// TestSpread: quantiles are those of the sorted numbers, exactly where these are
// small, and within 0.2 %.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, most := range []int64{2, exact, 5000, 1 << 40, math.MaxInt64} {
		var whole, a, b spread
		var values []int64
		for i := range 1001 {
			v := rng.Int64N(most)
			values = append(values, v)
			whole.add(v)
			[]*spread{&a, &b}[i%2].add(v)
		}
		a.merge(b)
		same(t, "merged", a, whole)
		slices.Sort(values)
		f := whole.figure()
		for tenths, got := range map[int]int64{5: f.Median, 9: f.P90} {
			want := values[(len(values)*tenths+9)/10-1]
			if off := math.Abs(float64(got - want)); off > 0.002*float64(want) || most <= exact && off > 0 {
				t.Errorf("up to %d: %d tenths are up to %d, want %d", most, tenths, got, want)
			}
		}
	}
	var none, negative, edges spread
	if none.figure() != nil {
		t.Error("no number has a mean")
	}
	negative.add(-5)
	same(t, "a negative number", negative.figure(), &Figure{Rollouts: 1})
	edges.add(math.MaxInt64)
	edges.add(math.MaxInt64)
	if f := edges.figure(); f.Mean < 1<<61 || f.Median < 1<<61 {
		t.Errorf("the largest numbers: %+v", f)
	}
}

// TestTotal: a mean of floats is exact up to its last rounding, and no number that a log can
// hold is too large for it.
func TestTotal(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{1e100, 1, -1e100}, 1. / 3}, {[]float64{0.1, 0.1, 0.1}, 0.1},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
		{[]float64{math.MaxFloat64, math.SmallestNonzeroFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64}, 0},
		{[]float64{1, math.Inf(1), math.NaN()}, 1},
	} {
		var sum total
		for _, v := range c.values {
			sum.add(v)
		}
		if got := sum.mean(); got == nil || *got != c.want {
			t.Errorf("the mean of %g: %s", c.values, spelled(got))
		}
	}
}
