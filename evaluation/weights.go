package evaluation

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// weighed are sums over rollouts. Those with weights are divided by e^scale, squares by its square.
type weighed struct {
	scale                               float64
	weight, squares, rewards, unweighed float64 // Σ w, Σ w², Σ w·r, Σ r
	n                                   float64
}

// rescale is the same with another scale, beside which the sums may vanish.
func (s weighed) rescale(scale float64) weighed {
	if s.scale != scale {
		factor := math.Exp(s.scale - scale)
		s.scale, s.weight, s.squares, s.rewards = scale, factor*s.weight, factor*factor*s.squares, factor*s.rewards
	}
	return s
}

// add is the sum of both at the larger scale.
func (s weighed) add(t weighed) weighed {
	if s.n == 0 {
		return t
	}
	if t.n == 0 {
		return s
	}
	scale := max(s.scale, t.scale)
	s, t = s.rescale(scale), t.rescale(scale)
	return weighed{scale, s.weight + t.weight, s.squares + t.squares, s.rewards + t.rewards,
		s.unweighed + t.unweighed, s.n + t.n}
}

// weigh sums up the rollouts of each task, in the order in which the tasks come.
func weigh(sampled []Sampled) ([]weighed, error) {
	if len(sampled) == 0 {
		return nil, errors.New("there are no rollouts")
	}
	if len(sampled) > maxAttempts {
		return nil, fmt.Errorf("%d rollouts: at most %d", len(sampled), maxAttempts)
	}
	var tasks []weighed
	at, seen := map[string]int{}, map[string]bool{}
	for _, s := range sampled {
		if seen[s.Rollout] {
			return nil, fmt.Errorf("rollout %q appears twice", s.Rollout)
		}
		seen[s.Rollout] = true
		scale, err := s.logWeight()
		if err != nil {
			return nil, fmt.Errorf("rollout %q: %w", s.Rollout, err)
		}
		i, ok := at[s.Task]
		if !ok || s.Task == "" {
			i = len(tasks)
			at[s.Task], tasks = i, append(tasks, weighed{})
		}
		tasks[i] = tasks[i].add(weighed{scale: scale, weight: 1, squares: 1, rewards: s.Reward,
			unweighed: s.Reward, n: 1})
	}
	return tasks, nil
}

// logWeight is the logarithm of the rollout's weight.
func (s Sampled) logWeight() (float64, error) {
	switch {
	case !(math.Abs(s.Reward) <= largestReward):
		return 0, fmt.Errorf("a reward of %g is not between -%g and %[2]g", s.Reward, largestReward)
	case len(s.Behaviour) != len(s.Candidate):
		return 0, fmt.Errorf("%d sampled tokens have log-probabilities, and the candidate gives %d", len(s.Behaviour),
			len(s.Candidate))
	case len(s.Behaviour) == 0:
		return 0, errors.New("it has no sampled tokens")
	}
	var weight float64
	for i, b := range s.Behaviour {
		for _, p := range []float64{b, s.Candidate[i]} {
			if !(p <= roundedUp && p >= lowestLogprob) {
				return 0, fmt.Errorf("token %d: %g is not a log-probability", i, p)
			}
		}
		weight += s.Candidate[i] - b
	}
	return weight, nil
}

const (
	// roundedUp is how far above 0 an inference server's half-precision
	// logarithm of nearly 1 may come.
	roundedUp = 1e-3
	// lowestLogprob is below what anybody writes for "impossible", and its sums are numbers.
	lowestLogprob = -1e90
)

// total sums up tasks.
func total(tasks []weighed) (sums weighed) {
	for _, t := range tasks {
		sums = sums.add(t)
	}
	return sums
}

// withoutEach are the totals without each one of the tasks.
func withoutEach(tasks []weighed) []weighed {
	sums := make([]weighed, len(tasks))
	var before, after weighed
	for i, t := range tasks {
		sums[i] = before
		before = before.add(t)
	}
	for i, t := range slices.Backward(tasks) {
		sums[i] = sums[i].add(after)
		after = after.add(t)
	}
	return sums
}

// vanishing is a sum of weights, beside the largest weight, that may have lost digits.
const vanishing = 1e-200
