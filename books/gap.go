package books

import (
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// GapWarning is the mean, in nats, above which a gap between trainer and sampler deserves a look.
// Trainers and servers that agree, both in bfloat16, are reported at 0.01 to 0.04
// (vllm-project/vime#64); a truncated importance ratio of 2, a common bound, is 0.69 for one token.
const GapWarning = 0.1

// StepGap is what a trainer stated of its log-probabilities at a step.
type StepGap struct {
	Step int64 `json:"step"`
	events.LogprobGap
	// Warning: the mean is above GapWarning.
	Warning bool `json:"warning,omitempty"`
}

// Gaps are those that a feed's trainer has stated, in the order of the steps, one for each step.
func (l *Run) Gaps(feedName string) (list []StepGap) {
	gaps := l.feed(feedName).gaps
	for _, step := range slices.Sorted(maps.Keys(gaps)) {
		list = append(list, StepGap{step, gaps[step], gaps[step].MeanAbs > GapWarning})
	}
	return list
}
