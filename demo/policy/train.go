package policy

import (
	"errors"
	"fmt"
	"math"
)

// TrainingSample is one recorded token sequence: the columns of a batch row that the trainer
// reads, all of the same length.
type TrainingSample struct {
	Tokens          []int32
	LossMask        []bool
	SamplerLogprobs []float32
	Advantages      []float32
}

// Options of the trainer.
type Options struct {
	LearningRate float64 // 0 leaves the weights as they are, bit for bit
	ClipLow      float64 // the ratio counts down to 1-ClipLow …
	ClipHigh     float64 // … and up to 1+ClipHigh
	UndoneCredit float64 // share of the advantage for the choice of a change that was undone
}

// DefaultOptions are the ones that the demo trains with.
func DefaultOptions() Options {
	return Options{LearningRate: 1, ClipLow: 0.8, ClipHigh: 4, UndoneCredit: 0.05}
}

// Validate names the first option that is out of its range.
func (o Options) Validate() error {
	switch {
	case !(o.LearningRate >= 0) || math.IsInf(o.LearningRate, 0):
		return fmt.Errorf("learning rate %v: want a finite number of at least 0", o.LearningRate)
	case !(o.ClipLow > 0 && o.ClipLow <= 1):
		return fmt.Errorf("clip low %v: want more than 0 and at most 1", o.ClipLow)
	case !(o.ClipHigh > 0):
		return fmt.Errorf("clip high %v: want more than 0", o.ClipHigh)
	case !(o.UndoneCredit >= 0 && o.UndoneCredit <= 1):
		return fmt.Errorf("undone credit %v: want at least 0 and at most 1", o.UndoneCredit)
	}
	return nil
}

// Stats of one step. All but the divergence are from before the weights move.
type Stats struct {
	Step         int64   `json:"step"`
	Decisions    int     `json:"decisions"`     // action tokens with a loss
	Unknown      int     `json:"unknown"`       // action tokens that could not be replayed
	MeanRatio    float64 `json:"mean_ratio"`    // new probability / sampler's probability
	ClipFraction float64 `json:"clip_fraction"` // of decisions whose ratio is outside of the clip range
	// sampler to trained policy, mean per decision after the step (k3 estimator)
	KL           float64 `json:"kl"`
	Entropy      float64 `json:"entropy"` // nats, mean per decision
	GradientNorm float64 `json:"gradient_norm"`
}

// Trainer is the reference trainer: a clipped policy gradient (PPO, Schulman et al. 2017)
// over recorded decisions,
//
//	maximise Σ min(ρ·A, clip(ρ, 1-ClipLow, 1+ClipHigh)·A),  ρ = π(a|s) / π_sampler(a|s),  A = advantage · credit
//
// The credit is one but for the choice of a change that was undone again: it left no trace in what
// was scored, so most of what the score says is about other choices (hindsight credit assignment,
// Harutyunyan et al. 2019). The steps are by Adagrad (Duchi et al. 2011) on the sum over the batch:
// most features belong to a single program, so a mean over the batch would only make each of them
// slower the more programs there are. It is deterministic: the same state and the same batch give
// the same weights. A Trainer is not for concurrent use.
type Trainer struct {
	Options Options
	model   *Model
	squares []float32 // Adagrad's sum of squared gradients
	step    int64
}

// NewTrainer begins with the initial policy.
func NewTrainer(o Options) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Trainer{Options: o, model: NewModel(), squares: make([]float32, Dimension)}, nil
}

// weighted is a decision with what its loss needs.
type weighted struct {
	decision
	advantage float64
	logprob   float64 // the sampler's
}

// Step trains on one batch. An error leaves the trainer as it was.
func (t *Trainer) Step(samples []TrainingSample) (Stats, error) {
	decisions, unknown, err := t.prepare(samples)
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{Step: t.step + 1, Decisions: len(decisions), Unknown: unknown}
	g := newGradient()
	for i := range decisions {
		t.accumulate(&decisions[i], g, &stats)
	}
	stats.GradientNorm = g.norm()
	t.update(g)
	t.step++
	stats.mean(len(decisions))
	stats.KL = t.divergence(decisions)
	return stats, nil
}

func (t *Trainer) prepare(samples []TrainingSample) (all []weighted, unknown int, err error) {
	for n := range samples {
		sample := &samples[n]
		if err := sample.check(); err != nil {
			return nil, 0, fmt.Errorf("sample %d: %w", n, err)
		}
		decisions, missed, err := replay(sample.Tokens, sample.LossMask)
		if err != nil {
			return nil, 0, fmt.Errorf("sample %d: %w", n, err)
		}
		unknown += missed
		for _, d := range decisions {
			advantage := float64(sample.Advantages[d.token])
			if d.undone {
				advantage *= t.Options.UndoneCredit
			}
			if sample.LossMask[d.token] && len(d.candidates) > 1 {
				all = append(all, weighted{d, advantage, float64(sample.SamplerLogprobs[d.token])})
			}
		}
	}
	return all, unknown, nil
}

func (s *TrainingSample) check() error {
	n := len(s.Tokens)
	if n == 0 {
		return errors.New("no tokens")
	}
	if len(s.LossMask) != n || len(s.SamplerLogprobs) != n || len(s.Advantages) != n {
		return fmt.Errorf("%d tokens, but %d loss mask, %d logprobs, %d advantages: want equal lengths", n,
			len(s.LossMask), len(s.SamplerLogprobs), len(s.Advantages))
	}
	for i := range s.Tokens {
		if a, l := float64(s.Advantages[i]), float64(s.SamplerLogprobs[i]); math.IsNaN(a) || math.IsInf(a, 0) ||
			math.IsNaN(l) || math.IsInf(l, 0) {
			return fmt.Errorf("token %d: advantage %v, logprob %v: want finite numbers", i, a, l)
		}
	}
	return nil
}

// accumulate adds the gradient of one decision.
func (t *Trainer) accumulate(d *weighted, g *gradient, stats *Stats) {
	g.logprobs = t.model.logProbabilities(d.candidates, g.logprobs)
	ratio := math.Exp(min(g.logprobs[d.chosen]-d.logprob, 50))
	stats.MeanRatio += ratio
	for _, l := range g.logprobs {
		stats.Entropy -= math.Exp(l) * l
	}
	// Outside of the clip range, on the side that the advantage drives to, the objective is flat.
	if d.advantage > 0 && ratio > 1+t.Options.ClipHigh || d.advantage < 0 && ratio < 1-t.Options.ClipLow {
		stats.ClipFraction++
		return
	}
	scale := ratio * d.advantage
	if scale == 0 {
		return
	}
	for i, c := range d.candidates {
		slope := -math.Exp(g.logprobs[i])
		if i == d.chosen {
			slope++
		}
		for _, f := range c.features {
			g.add(f.index, scale*slope*float64(f.value))
		}
	}
}

// update moves the weights along the gradient. The squares begin at one: a feature's first steps
// are those of plain gradient ascent, later ones shrink with what it has already seen.
func (t *Trainer) update(g *gradient) {
	if t.Options.LearningRate == 0 {
		return
	}
	for _, index := range g.touched {
		slope := g.value[index]
		t.squares[index] += float32(slope * slope)
		w := float64(t.model.Weights[index])
		w += t.Options.LearningRate * slope / math.Sqrt(1+float64(t.squares[index]))
		t.model.Weights[index] = float32(w)
	}
}

// divergence is the mean k3 estimate of the KL divergence: ρ - 1 - log ρ.
func (t *Trainer) divergence(decisions []weighted) float64 {
	var buffer []float64
	sum := 0.0
	for i := range decisions {
		d := &decisions[i]
		buffer = t.model.logProbabilities(d.candidates, buffer)
		delta := min(buffer[d.chosen]-d.logprob, 50)
		sum += math.Exp(delta) - 1 - delta
	}
	return sum / max(1, float64(len(decisions)))
}

func (s *Stats) mean(decisions int) {
	n := max(1, float64(decisions))
	s.MeanRatio /= n
	s.Entropy /= n
	s.ClipFraction /= n
}

// gradient is a sparse sum over the features that a batch touches, in a fixed order.
type gradient struct {
	value    []float64
	seen     []bool
	touched  []uint32
	logprobs []float64
}

func newGradient() *gradient {
	return &gradient{value: make([]float64, Dimension), seen: make([]bool, Dimension)}
}

func (g *gradient) add(index uint32, v float64) {
	if !g.seen[index] {
		g.seen[index] = true
		g.touched = append(g.touched, index)
	}
	g.value[index] += v
}

func (g *gradient) norm() float64 {
	sum := 0.0
	for _, index := range g.touched {
		sum += g.value[index] * g.value[index]
	}
	return math.Sqrt(sum)
}
