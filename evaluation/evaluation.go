// Package evaluation says how good a policy is: pass@k, rewards and costs over a set of tasks with
// intervals of confidence, paired comparisons, the value of another policy from recorded rollouts,
// and reports of all that. It is pure: attempts go in, figures come out, and the same attempts and
// options always give the same figures.
package evaluation

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// Attempt is one rollout of a task.
type Attempt struct {
	Rollout string `json:"rollout"`
	Task    string `json:"task"`
	// Reward is the scorer's, 0 where the attempt failed.
	Reward float64 `json:"reward"`
	// Failed: the infrastructure failed and there is no reward. Such an attempt counts in no figure
	// but the number of failed ones: it says nothing of the policy.
	Failed       bool    `json:"failed,omitzero"`
	Turns        int     `json:"turns"`
	Tokens       int     `json:"tokens"`  // of the whole conversation
	Sampled      int     `json:"sampled"` // the tokens that the policy sampled
	ToolCalls    int     `json:"tool_calls"`
	ToolFailures int     `json:"tool_failures"`
	Seconds      float64 `json:"seconds"`
	StopReason   string  `json:"stop_reason,omitzero"`
	// Forfeit is the class of what the agent did to its tests, where they gave no verdict by its
	// doing. The attempt counts, and has not passed.
	Forfeit string `json:"forfeit,omitzero"`
	// Cause is stage and class of the failure of a failed attempt: "tools: sandbox".
	Cause      string `json:"cause,omitzero"`
	Version    int64  `json:"version"`             // of the policy that sampled the last turn
	Trajectory string `json:"trajectory,omitzero"` // the key of its object
	// Behaviour is what the agent did, nil where that is not known.
	Behaviour *behaviour.Rollout `json:"-"`
}

// Options are how figures are made of attempts. The zero value has the defaults.
type Options struct {
	// K are the k of pass@k. Without any: 1 and the largest that every task has attempts for.
	K []int
	// PassAt is the reward from which on an attempt has passed; 0 is 1.
	PassAt float64
	// Confidence of the intervals, and 1 − the level of significance of comparisons; 0 is 0.95.
	Confidence float64
	// Resamples of the bootstrap, and the flips of a permutation test that has too many for
	// all of them; 0 is 10,000.
	Resamples int
	Seed      int64
}

// Estimate is a figure with the ends of its interval of confidence.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

const (
	minResamples = 100 // below, the ends of an interval are the extremes of a few draws
	maxResamples = 1_000_000
	maxK         = 1_000_000
	maxAttempts  = 1_000_000
)

// withDefaults fills in what is left out and refuses what makes no sense.
func (o Options) withDefaults() (Options, error) {
	o.PassAt = cmp.Or(o.PassAt, 1)
	o.Confidence = cmp.Or(o.Confidence, 0.95)
	o.Resamples = cmp.Or(o.Resamples, 10_000)
	o.K = slices.Compact(slices.Sorted(slices.Values(o.K)))
	switch {
	case !finite(o.PassAt):
		return o, fmt.Errorf("an attempt cannot pass at a reward of %g: give a number", o.PassAt)
	case !(o.Confidence > 0 && o.Confidence < 1):
		return o, fmt.Errorf("a confidence of %g: it must be between 0 and 1, such as 0.95", o.Confidence)
	case o.Resamples < minResamples || o.Resamples > maxResamples:
		return o, fmt.Errorf("%d resamples: it must be %d to %d", o.Resamples, minResamples, maxResamples)
	}
	for _, k := range o.K {
		if k < 1 || k > maxK {
			return o, fmt.Errorf("pass@%d: k must be 1 to %d", k, maxK)
		}
	}
	return o, nil
}

// passed reports whether a reward is a pass. A weighted sum of components may miss its threshold by
// a rounding error, which decides nothing.
func (o Options) passed(reward float64) bool { return reward >= o.PassAt-1e-9 }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
