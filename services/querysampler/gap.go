package querysampler

import (
	"fmt"

	"github.com/rondo-rl/rondo/events"
)

// gapped is what the circuit breaker knows of the trainer's log-probabilities.
type gapped struct {
	// Step is the last one whose gap was over the limit: stated again, after a rewind or by a
	// trainer that was killed, it counts no second time.
	Step int64 `json:"step"`
	// Over is that gap, until the run is resumed.
	Over *events.LogprobGap `json:"over,omitempty"`
}

// note takes in the gap of a step.
func (g *gapped) note(step int64, gap *events.LogprobGap, limit float64) {
	if gap == nil || limit == 0 || !(gap.MeanAbs > limit) || step <= g.Step {
		return
	}
	g.Step, g.Over = step, gap
}

// resumed lets go of what was stated before the operator saw to it.
func (g *gapped) resumed() { g.Over = nil }

// applyConsumed looks at the first feed alone: the policy is trained on that one.
func (d *Decider) applyConsumed(s *state, e events.Event) error {
	if d.cfg.Limits.LogprobGap == 0 || e.Entity != d.feed.Name {
		return nil
	}
	consumed, err := events.Data[events.BatchConsumed](e)
	if err != nil {
		return err
	}
	s.Gap.note(consumed.Step, consumed.LogprobGap, d.cfg.Limits.LogprobGap)
	return nil
}

// gapTooLarge: the trainer does not compute the probabilities that the sampler drew from, so its
// gradients are those of another policy.
func (d *Decider) gapTooLarge(g gapped) (class, why string) {
	if g.Over == nil {
		return "", ""
	}
	return events.PauseLogprobGap,
		fmt.Sprintf("at step %d the trainer's log-probabilities are %.3g nats from the sampler's in the mean over %d tokens of the trainer's own policy version "+
			"(limits.logprob_gap %g; largest %.3g, KL %.3g). Trainer and inference server should agree there, so it trains on another policy than the one that was sampled. "+
			"Check: the server has the weights of the version that it reports; the trainer has the same weights, and applies temperature and other sampling settings of the run; "+
			"the server gives processed log-probabilities (`rondo doctor --endpoint URL --model MODEL`); number format, quantisation and kernels of both. Then `rondo run resume %s`",
			g.Step, g.Over.MeanAbs, g.Over.Tokens, d.cfg.Limits.LogprobGap, g.Over.MaxAbs, g.Over.KL, d.run)
}
