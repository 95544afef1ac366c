package runfile

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// StepSpec is one step of a task.
type StepSpec struct {
	Name            string            `json:"name"`
	Instruction     string            `json:"instruction"`
	AgentTimeout    Duration          `json:"agent_timeout,omitempty"`
	VerifierTimeout Duration          `json:"verifier_timeout"`
	VerifierEnv     map[string]string `json:"verifier_env,omitempty"`
	// MinReward are the least values of the verifier's components with which the next step follows.
	// One that is not reported is too small.
	MinReward map[string]float64 `json:"min_reward,omitempty"`
	Collect   []Hook             `json:"collect,omitempty"`
	Tests     storage.Ref        `json:"tests"`
	// Files are laid over the workspace before the step begins, an archive of
	// sandbox.Pack; a setup.sh in it is run there, and removed. The first step has none:
	// what it brings is in the snapshot.
	Files *storage.Ref `json:"files,omitempty"`
}

// Strategies are what the components of the verdicts on its steps make of a task: the mean of
// each, or the last verdict's.
const (
	StrategyMean  = "mean"
	StrategyFinal = "final"
)

// InStep is the task as it is in one of its steps. A task without steps is the same throughout.
func (t TaskSpec) InStep(step int) TaskSpec {
	if step >= len(t.Steps) {
		return t
	}
	s := t.Steps[step]
	t.Instruction, t.AgentTimeout, t.VerifierTimeout, t.VerifierEnv, t.Collect, t.Tests = s.Instruction, s.AgentTimeout,
		s.VerifierTimeout, s.VerifierEnv, s.Collect, s.Tests
	return t
}

// Instructions are all that the task's agent may be asked.
func (t TaskSpec) Instructions() string {
	if len(t.Steps) == 0 {
		return t.Instruction
	}
	var all []string
	for _, s := range t.Steps {
		all = append(all, s.Instruction)
	}
	return strings.Join(all, "\n\n")
}

// Passes reports whether the next step follows on a verdict.
func (s StepSpec) Passes(components map[string]float64) bool {
	for name, least := range s.MinReward {
		if value, ok := components[name]; !ok || value < least {
			return false
		}
	}
	return true
}

// ValidateSteps checks the stages of a task.
func (t TaskSpec) ValidateSteps(check func(ok bool, format string, args ...any)) {
	check(len(t.Steps) <= maxSteps, "steps: %d of them, at most %d", len(t.Steps), maxSteps)
	check(slices.Contains([]string{"", StrategyMean, StrategyFinal}, t.RewardStrategy),
		"reward_strategy %.40q: must be %s or %s", t.RewardStrategy, StrategyMean, StrategyFinal)
	for i, s := range t.Steps {
		check(s.Name != "" && s.Instruction != "", "steps: %d: it needs a name and an instruction", i)
		check(s.AgentTimeout >= 0 && s.VerifierTimeout >= 0, "steps: %d: timeouts %s and %s: must not be negative", i,
			time.Duration(s.AgentTimeout), time.Duration(s.VerifierTimeout))
		check(len(s.MinReward) <= maxMinReward, "steps: %d: min_reward: %d components, at most %d", i,
			len(s.MinReward), maxMinReward)
		for name, least := range s.MinReward {
			check(!math.IsNaN(least), "steps: %d: min_reward.%.40s: must be a number", i, name)
		}
		err := s.Tests.Validate()
		check(err == nil, "steps: %d: tests: %v", i, err)
		if s.Files != nil {
			err := s.Files.Validate()
			check(err == nil, "steps: %d: files: %v", i, err)
			check(i > 0, "steps: 0: files: the first step cannot have files: put them into the snapshot")
		}
	}
}

const (
	maxSteps     = 1000
	maxMinReward = 100 // components
)
