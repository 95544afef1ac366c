package advantage

import (
	"math"
	"slices"
)

// MeanCentred is A_i = r_i − mean(r): GRPO without division by the standard deviation, as in Dr.
// GRPO (Liu et al. 2025, arXiv:2503.20783), Composer 2, Tinker's cookbook and prime-rl's "grpo". A
// group of one and a group of equal rewards get 0.
func MeanCentred(rewards []float64) []float64 { return overScored(rewards, centred) }

func centred(rewards []float64) []float64 {
	mean := Mean(rewards)
	advantages := make([]float64, len(rewards))
	for i, r := range rewards {
		advantages[i] = r - mean
	}
	return advantages
}

// Places where StdNormalised adds eps.
const (
	EpsOutside = "outside" // std + eps
	EpsInside  = "inside"  // √(variance + eps)
	EpsMax     = "max"     // max(std, eps)
)

// What an estimator makes of a group of one, whose deviation is undefined.
const (
	SingletonZero = "zero" // its advantage is 0
	// its advantage is its reward; verl and rLLM, whose deviation of one is 1, divide it by 1 + eps
	SingletonRaw = "raw"
)

// Std says how StdNormalised divides.
type Std struct {
	DDOF      int     // the variance divides by n − DDOF
	Eps       float64 // keeps the divisor from 0
	EpsAt     string
	Singleton string
}

// StdNormalised is A_i = (r_i − mean(r)) / (std(r) + eps): the GRPO of DeepSeekMath (Shao et al.
// 2024, arXiv:2402.03300). Implementations that bear that name differ in the deviation's degrees of
// freedom, in eps and where it stands, and in what a group of one gets: verl's "grpo" has ddof 1,
// 1e-6 outside and the raw reward, TRL's GRPOTrainer ddof 1 and 1e-4, its asynchronous trainer ddof
// 0 and 1e-8. A group of equal rewards gets 0.
func StdNormalised(rewards []float64, s Std) []float64 {
	return overScored(rewards, func(rewards []float64) []float64 {
		if len(rewards) == 1 && s.Singleton == SingletonRaw {
			return rewards
		}
		advantages := centred(rewards)
		if len(rewards) < 2 || equal(rewards) {
			return advantages
		}
		variance := variance(rewards, s.DDOF)
		divisor := math.Sqrt(variance) + s.Eps
		switch s.EpsAt {
		case EpsInside:
			divisor = math.Sqrt(variance + s.Eps)
		case EpsMax:
			divisor = max(math.Sqrt(variance), s.Eps)
		}
		return divided(advantages, divisor)
	})
}

// RLOO is A_i = r_i − mean(r without r_i) = n/(n−1) · (r_i − mean(r)): REINFORCE with a
// leave-one-out baseline (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740), as "rloo" of
// verl, SkyRL and OpenRLHF. A group of one, for which nothing is left to compare with, and a
// group of equal rewards get 0.
func RLOO(rewards []float64) []float64 {
	return overScored(rewards, func(rewards []float64) []float64 {
		advantages := centred(rewards)
		if n := float64(len(rewards)); n > 1 {
			for i := range advantages {
				advantages[i] = float64(advantages[i] * (n / (n - 1)))
			}
		}
		return advantages
	})
}

// MaxRL is A_i = (r_i − mean(r)) / (mean(r) − min(0, min(r)) + eps): maximum-likelihood
// reinforcement learning, which weighs hard tasks up by the inverse of their pass rate, as
// prime-rl's "max_rl" (eps 0) and SkyRL's "maxrl" (eps 1e-6). Those are made for rewards from 0 on,
// where the divisor is the mean. Where a reward is negative, all are counted from the lowest one,
// so the divisor is positive, and no advantage of n members is above n − 1, however near to 0 the
// mean is. A group of one and a group of equal rewards get 0.
func MaxRL(rewards []float64, eps float64) []float64 {
	return overScored(rewards, func(rewards []float64) []float64 {
		if len(rewards) == 0 || equal(rewards) {
			return make([]float64, len(rewards))
		}
		lowest := min(0, slices.Min(rewards))
		return divided(centred(rewards), Mean(rewards)-lowest+eps)
	})
}

// leaveOneOutEps is outside of the root, as in NeMo-RL.
const leaveOneOutEps = 1e-6

// LeaveOneOut is A_i = (r_i − mean(r without r_i)) / (std(r without r_i) + 1e-6) with the sample
// standard deviation (ddof 1), NeMo-RL's "grpo" with its default leave-one-out baseline. Where the
// others' deviation is 0 or undefined, nothing is divided: a lone success keeps its raw distance. A
// group of one gets 0, as do equal rewards.
func LeaveOneOut(rewards []float64) []float64 {
	return overScored(rewards, func(rewards []float64) []float64 {
		advantages := make([]float64, len(rewards))
		if len(rewards) < 2 {
			return advantages
		}
		others := make([]float64, len(rewards)-1)
		for i, r := range rewards {
			copy(others, rewards[:i])
			copy(others[i:], rewards[i+1:])
			advantages[i] = r - Mean(others)
			if len(others) > 1 && !equal(others) {
				advantages[i] /= math.Sqrt(variance(others, 1)) + leaveOneOutEps
			}
		}
		return advantages
	})
}

// RAE is A_i = r_i − b with an exponential moving average b of the task's rewards, which each
// member updates after it was compared: b ← decay·b + (1 − decay)·r_i, in member order. It is the
// role-conditioned advantage estimation of SPIRAL (Liu et al. 2025, arXiv:2506.24119) in the order
// of prime-rl's "rae", with the task as the role. The first baseline of a task is 0. Groups of one
// and of equal rewards are compared with the baseline like all others.
func RAE(rewards []float64, baseline, decay float64) (advantages []float64, after float64) {
	after = baseline
	advantages = overScored(rewards, func(rewards []float64) []float64 {
		a := make([]float64, len(rewards))
		for i, r := range rewards {
			a[i] = r - after
			after = float64(decay*after) + float64((1-decay)*r)
		}
		return a
	})
	return advantages, after
}
