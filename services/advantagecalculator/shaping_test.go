package advantagecalculator

import (
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// finished ends an episode, of whose sampled tokens a fifth is masked.
func finished(l *decidertest.Log, rollout string, sampled, others, turns int) {
	masked := sampled / 5
	l.Happen(events.RolloutFinishedType, rollout, events.RolloutFinished{
		Sampled: sampled - masked, Masked: map[string]int{"titles": masked}, Tokens: sampled + others, Turns: turns,
	})
}

func TestShaping(t *testing.T) {
	length := &runfile.LengthPenalty{Output: 0.2, Input: 0.4, Turns: 1}
	overlong := &runfile.SoftOverlong{MaxTokens: 80, Buffer: 40}
	for name, c := range map[string]struct {
		shaping runfile.Shaping
		shaped  []float64 // of three scored members; the mean of their rewards is 2/3
	}{
		"none": {runfile.Shaping{}, []float64{1, 0, 1}},
		// 2/3 · (0.2·100/100 + 0.4·10/40 + 1·2/4) = 0.533333, and so on
		"length":        {runfile.Shaping{Length: length}, []float64{1 - 0.533333, -0.366667, 1 - 0.966667}},
		"soft overlong": {runfile.Shaping{SoftOverlong: overlong}, []float64{0, -0.25, 1}},
		"both": {runfile.Shaping{Length: length, SoftOverlong: overlong},
			[]float64{-0.533333, -0.616667, 1 - 0.966667}},
		"soft overlong of another factor": {runfile.Shaping{SoftOverlong: &runfile.SoftOverlong{MaxTokens: 80,
			Buffer: 40, Factor: 2}},
			[]float64{-1, -0.5, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, func(cfg *runfile.RunConfig) { cfg.Shaping = c.shaping })
			open(l, "g000001", 4)
			finished(l, "g000001-0", 100, 10, 2)
			finished(l, "g000001-1", 50, 20, 1)
			finished(l, "g000001-2", 25, 40, 4)
			finished(l, "g000001-3", 1000, 1000, 100) // fails: nobody is compared with its length
			finished(l, "g000009-0", 9, 9, 9)         // of no group
			scored(l, "g000001-0", 1)
			scored(l, "g000001-1", 0)
			scored(l, "g000001-2", 1)
			failed(l, "g000001-3")
			group := decidertest.Data[events.GroupCompleted](t, l.Settle()[0])
			mean := (c.shaped[0] + c.shaped[1] + c.shaped[2]) / 3
			for i, m := range group.Members[:3] {
				if math.Abs(m.Shaped-c.shaped[i]) > 1e-6 || math.Abs(m.Advantage-(c.shaped[i]-mean)) > 1e-6 ||
					m.Reward != []float64{1, 0, 1}[i] {
					t.Errorf("member %d: %+v, want it to be shaped to %g", i, m, c.shaped[i])
				}
			}
			if math.Abs(group.Mean-2./3) > 1e-9 {
				t.Errorf("the mean is of shaped rewards: %g", group.Mean)
			}
		})
	}
}

// In the control experiment even the length of a rollout says nothing.
func TestShapedRewardsAreShuffled(t *testing.T) {
	moved := false
	for n := range int64(20) {
		l := newLog(t, func(cfg *runfile.RunConfig) {
			cfg.Shaping.SoftOverlong = &runfile.SoftOverlong{MaxTokens: 8, Buffer: 8}
			cfg.Advantage.ShuffleRewards = true
		})
		id := events.GroupID(n + 1)
		open(l, id, 4)
		var straight, shaped []float64
		for i := range 4 {
			finished(l, events.RolloutID(id, i), i, 0, 1)
			scored(l, events.RolloutID(id, i), 1)
			straight = append(straight, 1-float64(i)/8)
		}
		for _, m := range decidertest.Data[events.GroupCompleted](t, l.Settle()[0]).Members {
			shaped = append(shaped, m.Shaped)
		}
		moved = moved || !slices.Equal(shaped, straight)
		slices.Sort(shaped)
		slices.Reverse(shaped)
		if !slices.Equal(shaped, straight) {
			t.Errorf("%s: shaped rewards %v, want those of %v", id, shaped, straight)
		}
	}
	if !moved {
		t.Error("nothing was shuffled")
	}
}

// What overflows is no JSON, and must not stop the run.
func TestRewardsThatOverflow(t *testing.T) {
	for _, name := range runfile.Estimators {
		l := newLog(t, func(cfg *runfile.RunConfig) {
			cfg.Advantage.Estimator = name
			cfg.Shaping.Length = &runfile.LengthPenalty{Output: 10, Input: 10, Turns: 10}
		})
		open(l, "g000001", 3)
		for i, reward := range []float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64} {
			finished(l, events.RolloutID("g000001", i), 1, 1, 1)
			scored(l, events.RolloutID("g000001", i), reward)
		}
		if facts := l.Settle(); len(facts) != 1 {
			t.Errorf("%s: %v", name, decidertest.Names(facts))
		}
	}
}
