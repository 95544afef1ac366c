package policy

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Model is a copy of the policy as trained so far.
func (t *Trainer) Model() *Model {
	return &Model{Weights: append([]float32(nil), t.model.Weights...)}
}

func TestTrainingRaisesTheReward(t *testing.T) {
	const steps = 12
	first, last := trained(t, DefaultOptions(), steps, centred)
	t.Logf("reward rose from %.2f to %.2f", first, last)
	if last-first < 0.4 {
		t.Errorf("reward rose from %.2f to %.2f: want at least 0.4 more", first, last)
	}
	controls := map[string]func([]float64, *rand.Rand) []float64{
		"shuffled rewards": func(rewards []float64, random *rand.Rand) []float64 {
			random.Shuffle(len(rewards), func(i, j int) { rewards[i], rewards[j] = rewards[j], rewards[i] })
			return centred(rewards, random)
		},
		"turned round": func(rewards []float64, random *rand.Rand) []float64 {
			out := centred(rewards, random)
			for i := range out {
				out[i] = -out[i]
			}
			return out
		},
	}
	for name, credit := range controls {
		first, last := trained(t, DefaultOptions(), steps, credit)
		t.Logf("%s: reward went from %.2f to %.2f", name, first, last)
		if last-first > 0.25 {
			t.Errorf("%s: reward rose from %.2f to %.2f though there was nothing to learn", name, first, last)
		}
	}
}

func TestLearningRateZeroLeavesTheWeightsBitEqual(t *testing.T) {
	o := DefaultOptions()
	trainer := someTraining(t, o, 2)
	before := slices.Clone(trainer.model.Weights)
	trainer.Options.LearningRate = 0
	if _, err := trainer.Step(someSamples(t, trainer.Model(), 9)); err != nil {
		t.Fatal(err)
	}
	for i, w := range trainer.model.Weights {
		if math.Float32bits(w) != math.Float32bits(before[i]) {
			t.Fatalf("weight %d changed from %v to %v", i, before[i], w)
		}
	}
}

func TestTrainerStateGoesOnExactly(t *testing.T) {
	a := someTraining(t, DefaultOptions(), 2)
	state, err := a.Save()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewTrainer(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Load(state); err != nil {
		t.Fatal(err)
	}
	samples := someSamples(t, a.Model(), 5)
	statsA, errA := a.Step(samples)
	statsB, errB := b.Step(samples)
	if errA != nil || errB != nil || statsA != statsB {
		t.Fatalf("%+v %v, want %+v %v", statsB, errB, statsA, errA)
	}
	weightsA, _ := a.Weights()
	weightsB, _ := b.Weights()
	if !bytes.Equal(weightsA, weightsB) || b.step != 3 {
		t.Errorf("the loaded trainer went another way, at step %d", b.step)
	}
	if err := b.Load(state[:len(state)/2]); err == nil {
		t.Error("half a state was loaded")
	}
}

// someSamples are episodes with advantages of both signs.
func someSamples(t *testing.T, m *Model, seed uint64) []TrainingSample {
	t.Helper()
	var samples []TrainingSample
	for n, y := range toys() {
		for i := range 3 {
			samples = append(samples, y.play(t, m, seed+uint64(100*n+i), 5).advantage(float64(i)-0.9))
		}
	}
	return samples
}

func someTraining(t *testing.T, o Options, steps int) *Trainer {
	t.Helper()
	trainer, err := NewTrainer(o)
	if err != nil {
		t.Fatal(err)
	}
	for step := range steps {
		if _, err := trainer.Step(someSamples(t, trainer.Model(), uint64(1000*step))); err != nil {
			t.Fatal(err)
		}
	}
	return trainer
}

// TestGradient compares the gradient with central differences of the objective.
func TestGradient(t *testing.T) {
	o := DefaultOptions()
	o.LearningRate, o.ClipLow, o.ClipHigh = 5, 0.2, 0.2 // a step so long that ratios leave the bounds
	trainer := someTraining(t, o, 1)
	decisions, _, err := trainer.prepare(someSamples(t, NewModel(), 3)) // off-policy: ratios differ from one
	if err != nil {
		t.Fatal(err)
	}
	var stats Stats
	g := newGradient()
	for i := range decisions {
		trainer.accumulate(&decisions[i], g, &stats)
	}
	if stats.ClipFraction == 0 || int(stats.ClipFraction) == len(decisions) {
		t.Fatalf("%v of %d decisions are clipped: the test wants some", stats.ClipFraction, len(decisions))
	}
	random := rand.New(rand.NewPCG(4, 4))
	checked := 0
	for range 200 {
		index := g.touched[random.IntN(len(g.touched))]
		want, smooth := numericGradient(trainer, decisions, index)
		if !smooth {
			continue // a clip boundary lies within the difference
		}
		checked++
		if got := g.value[index]; math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("feature %d: gradient %v, want %v", index, got, want)
		}
	}
	if checked < 100 {
		t.Errorf("only %d features were checked", checked)
	}
}

// numericGradient is the central difference; it is smooth when no decision crosses a
// clip boundary within it.
func numericGradient(trainer *Trainer, decisions []weighted, index uint32) (slope float64, smooth bool) {
	const h = 1.0 / 512
	_, base := objective(trainer, decisions)
	old := trainer.model.Weights[index]
	defer func() { trainer.model.Weights[index] = old }()
	trainer.model.Weights[index] = old + h
	above := float64(trainer.model.Weights[index])
	up, clippedUp := objective(trainer, decisions)
	trainer.model.Weights[index] = old - h
	below := float64(trainer.model.Weights[index])
	down, clippedDown := objective(trainer, decisions)
	return (up - down) / (above - below), slices.Equal(clippedUp, base) && slices.Equal(clippedDown, base)
}

// objective is the clipped surrogate, written down as in the paper, and for
// which decisions it is flat.
func objective(trainer *Trainer, decisions []weighted) (sum float64, clipped []bool) {
	o := trainer.Options
	for _, d := range decisions {
		ratio := math.Exp(trainer.model.logProbabilities(d.candidates, nil)[d.chosen] - d.logprob)
		bounded := max(1-o.ClipLow, min(ratio, 1+o.ClipHigh)) * d.advantage
		sum += min(ratio*d.advantage, bounded)
		clipped = append(clipped, bounded < ratio*d.advantage)
	}
	return sum, clipped
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"learning rate": func(o *Options) { o.LearningRate = math.NaN() },
		"clip low":      func(o *Options) { o.ClipLow = 0 },
		"clip high":     func(o *Options) { o.ClipHigh = -1 },
		"undone credit": func(o *Options) { o.UndoneCredit = 2 },
	} {
		o := DefaultOptions()
		change(&o)
		if _, err := NewTrainer(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestBadSamplesAreRefusedAndChangeNothing(t *testing.T) {
	trainer := someTraining(t, DefaultOptions(), 1)
	before := slices.Clone(trainer.model.Weights)
	good := someSamples(t, trainer.Model(), 1)
	for name, spoil := range map[string]func(*TrainingSample){
		"no tokens":      func(s *TrainingSample) { *s = TrainingSample{} },
		"lengths":        func(s *TrainingSample) { s.Advantages = s.Advantages[1:] },
		"NaN":            func(s *TrainingSample) { s.Advantages[3] = float32(math.NaN()) },
		"infinite":       func(s *TrainingSample) { s.SamplerLogprobs[3] = float32(math.Inf(-1)) },
		"no message":     func(s *TrainingSample) { s.Tokens[0] = 7 },
		"negative token": func(s *TrainingSample) { s.Tokens[0] = -5 },
	} {
		samples := slices.Clone(good)
		last := &samples[len(samples)-1]
		*last = TrainingSample{slices.Clone(last.Tokens), slices.Clone(last.LossMask),
			slices.Clone(last.SamplerLogprobs), slices.Clone(last.Advantages)}
		spoil(last)
		if _, err := trainer.Step(samples); err == nil {
			t.Errorf("%s: was trained on", name)
		}
	}
	if !slices.Equal(before, trainer.model.Weights) || trainer.step != 1 {
		t.Error("a refused batch changed the trainer")
	}
}
