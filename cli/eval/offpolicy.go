package eval

import (
	"context"
	"fmt"
	"os"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/evaluation"
)

// offPolicy estimates the value of the candidate whose log-probabilities --logprobs holds. Those of
// the policy that sampled are read from the trajectory files.
func (e *evaluator) offPolicy(ctx context.Context, m measured) (*evaluation.OffPolicy, error) {
	file, err := os.Open(e.o.logprobs)
	if err != nil {
		return nil, fmt.Errorf("--logprobs: %w", err)
	}
	defer file.Close()
	candidate, err := evaluation.ReadCandidate(file)
	if err != nil {
		return nil, fmt.Errorf("--logprobs %s: %w", e.o.logprobs, err)
	}
	var sampled []evaluation.Sampled
	left := 0
	for i, a := range m.attempts {
		logprobs, ok := candidate[a.Rollout]
		delete(candidate, a.Rollout)
		switch {
		case a.Failed:
			continue
		case !ok:
			left++
			continue
		}
		behaviour, err := evaluation.Behaviour(ctx, e.p.Store, m.files[a.Rollout])
		if err != nil {
			return nil, fmt.Errorf("rollout %s: %w", a.Rollout, err)
		}
		sampled = append(sampled, evaluation.Sampled{Rollout: a.Rollout, Task: a.Task, Reward: a.Reward,
			Behaviour: behaviour, Candidate: logprobs})
		e.show.Show("%d of %d trajectories read", i+1, len(m.attempts))
	}
	for _, rollout := range app.SortedKeys(candidate) {
		return nil, fmt.Errorf("--logprobs %s: run %s has no rollout %q with an outcome", e.o.logprobs, m.run, rollout)
	}
	value, err := evaluation.OffPolicyValue(sampled, e.o.figures())
	if err != nil {
		return nil, err
	}
	if left > 0 {
		value.Warnings = append(value.Warnings, fmt.Sprintf(
			"%d scored rollouts are not in the file: the value is that on the others alone", left))
	}
	if t := m.cfg.Sampling.Temperature; t != 1 {
		value.Warnings = append(value.Warnings,
			fmt.Sprintf("the run sampled at temperature %g, and most servers report log-probabilities of temperature 1: then the weights are wrong", t))
	}
	return &value, nil
}
