package evaluation

import (
	"fmt"
	"math"
)

// Sampled is a recorded rollout as another policy sees it.
type Sampled struct {
	Rollout string
	// Task groups the rollouts that are not independent of each other; whole tasks are resampled.
	// Empty: the rollout stands for itself.
	Task   string
	Reward float64
	// Behaviour and Candidate are the log-probabilities (natural logarithms) of the sampled tokens,
	// in order, under the policy that sampled them and under the one that is asked about. Behaviour
	// must be of the distribution that the tokens were drawn from, temperature and all.
	Behaviour, Candidate []float64
}

// OffPolicy is the value of a candidate policy, estimated from rollouts of another one.
type OffPolicy struct {
	Rollouts int `json:"rollouts"`
	// Recorded is the mean reward of the policy that sampled the rollouts.
	Recorded Estimate `json:"recorded"`
	// Ordinary is the importance-sampling estimate (1/n) Σ wᵢ·rᵢ; nil where the weights
	// are too large for a number.
	Ordinary *Estimate `json:"ordinary"`
	// Weighted is the self-normalised estimate Σ wᵢ·rᵢ / Σ wᵢ.
	Weighted Estimate `json:"weighted"`
	// EffectiveSampleSize is Kish's (Σ w)² / Σ w²: as many rollouts of the candidate
	// itself would tell as much.
	EffectiveSampleSize float64 `json:"effective_sample_size"`
	// MeanWeight is 1 in expectation; far from it the two sets of log-probabilities do not fit
	// together. nil where the weights are too large for a number.
	MeanWeight *Estimate `json:"mean_weight"`
	// LargestShare is the part of the sum of weights that a single rollout has.
	LargestShare float64  `json:"largest_share"`
	Warnings     []string `json:"warnings,omitzero"`
	Confidence   float64  `json:"confidence"`
}

// OffPolicyValue estimates the mean reward that a candidate would have had, from rollouts that
// another policy sampled on the same tasks, by importance sampling of whole rollouts: the weight of
// one is the product over its sampled tokens of the candidate's probability over the behaviour's;
// what the tools answered cancels out. The ordinary estimate is unbiased, and varies the more the
// longer the rollouts are. The self-normalised one is biased and stays within the range of the
// rewards; both tend to the same value (Precup, Sutton and Singh 2000, "Eligibility traces for
// off-policy policy evaluation", section 2; Owen 2013, "Monte Carlo theory, methods and examples",
// chapter 9). As the reward comes at the end, the per-decision estimate is the ordinary one.
// Weights stay logarithms until the largest is divided out.
func OffPolicyValue(sampled []Sampled, o Options) (OffPolicy, error) {
	o, err := o.withDefaults()
	if err != nil {
		return OffPolicy{}, err
	}
	tasks, err := weigh(sampled)
	if err != nil {
		return OffPolicy{}, fmt.Errorf("off-policy value: %w", err)
	}
	all := total(tasks)
	v := OffPolicy{Rollouts: len(sampled), Confidence: o.Confidence,
		EffectiveSampleSize: all.weight * all.weight / all.squares, LargestShare: 1 / all.weight}
	v.estimate(tasks, o)
	v.warn()
	return v, nil
}

// figures of sums: those of the ordinary estimate and the mean weight are divided by e^scale.
type figures [4]float64

const (
	recorded = iota
	weighted
	ordinary
	meanWeight
)

func (s weighed) figures(scale float64) figures {
	factor := math.Exp(s.scale - scale)
	return figures{s.unweighed / s.n, s.rewards / s.weight, factor * s.rewards / s.n, factor * s.weight / s.n}
}

// estimate fills in the estimates, resampling whole tasks.
func (v *OffPolicy) estimate(tasks []weighed, o Options) {
	all := total(tasks)
	value := all.figures(all.scale)
	var estimates [len(value)]Estimate
	if len(tasks) == 1 {
		for f := range estimates {
			estimates[f] = Estimate{value[f], value[f], value[f]}
		}
		v.Warnings = append(v.Warnings, "all rollouts are of one task: there is nothing to make intervals of")
	} else {
		var replicates, without [len(value)][]float64
		keep := func(lists *[len(value)][]float64, s weighed) {
			for f, x := range s.figures(all.scale) {
				lists[f] = append(lists[f], x)
			}
		}
		for _, sums := range withoutEach(tasks) {
			keep(&without, sums)
		}
		level := make([]weighed, len(tasks)) // at one scale, which is much faster to sum up
		for i, t := range tasks {
			level[i] = t.rescale(all.scale)
		}
		resample(len(tasks), o, func(draw []int) {
			sums := weighed{scale: all.scale}
			for _, i := range draw {
				t := &level[i]
				sums.weight += t.weight
				sums.rewards += t.rewards
				sums.unweighed += t.unweighed
				sums.n += t.n
			}
			if sums.weight < vanishing {
				sums = weighed{}
				for _, i := range draw {
					sums = sums.add(tasks[i])
				}
			}
			keep(&replicates, sums)
		})
		for f := range estimates {
			estimates[f] = bootstrap(value[f], replicates[f], without[f], o.Confidence)
		}
	}
	v.Recorded, v.Weighted = estimates[recorded], estimates[weighted]
	v.scaleUp(estimates[ordinary], estimates[meanWeight], all.scale)
}

// scaleUp gives the ordinary estimate and the mean weight the factor back that their
// figures were divided by.
func (v *OffPolicy) scaleUp(ordinary, mean Estimate, scale float64) {
	factor := math.Exp(scale)
	ordinary = Estimate{factor * ordinary.Value, factor * ordinary.Low, factor * ordinary.High}
	mean = Estimate{factor * mean.Value, factor * mean.Low, factor * mean.High}
	for _, x := range []float64{ordinary.Value, ordinary.Low, ordinary.High, mean.Value, mean.Low, mean.High} {
		if !finite(x) {
			v.Warnings = append(v.Warnings, fmt.Sprintf(
				"the largest weight is e^%.0f: the ordinary estimate is too large for a number", scale))
			return
		}
	}
	v.Ordinary, v.MeanWeight = &ordinary, &mean
}

const (
	fewRollouts = 10 // as which an effective sample size is too small for an interval
	// of the rollouts: the share below which particle filters draw anew (Liu and
	// Chen 1998, JASA 93:1032)
	smallPart = 0.5
)

func (v *OffPolicy) warn() {
	if n := v.EffectiveSampleSize; n < fewRollouts || n < smallPart*float64(v.Rollouts) {
		v.Warnings = append(v.Warnings,
			fmt.Sprintf("the effective sample size is %.3g of %d rollouts (%.0f %%, warned of below %.0f %%), and one has %.0f %% of the "+
				"weight: the estimates and their intervals rest on few of the rollouts",
				n, v.Rollouts, 100*n/float64(v.Rollouts), 100*smallPart, 100*v.LargestShare))
	}
	if m := v.MeanWeight; m != nil && (m.Low > 1+1e-9 || m.High < 1-1e-9) { // sums round
		v.Warnings = append(v.Warnings,
			fmt.Sprintf("the mean weight is %.3g, where 1 is expected: the log-probabilities may not fit together (another temperature, "+
				"another tokenisation), or what the candidate prefers was not sampled", m.Value))
	}
}
