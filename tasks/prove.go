package tasks

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
)

// provedStep is a step with its trees packed. A task without steps is one of them, without a name.
type provedStep struct {
	Step
	tests, solution []byte
}

// folder is where the step's files lie in the task's folder.
func (s provedStep) folder() string {
	if s.Name == "" {
		return ""
	}
	return "steps/" + s.Name + "/"
}

func provedSteps(task *Task) ([]provedStep, error) {
	steps := task.Steps
	if len(steps) == 0 {
		steps = []Step{{VerifierTimeout: task.VerifierTimeout, VerifierEnv: task.VerifierEnv, Collect: task.Collect, Tests: task.Tests, Solution: task.Solution}}
	}
	var proved []provedStep
	for _, step := range steps {
		p := provedStep{Step: step}
		for _, tree := range []struct {
			name string
			fsys fs.FS
			into *[]byte
		}{{"tests", step.Tests, &p.tests}, {"solution", step.Solution, &p.solution}} {
			if tree.fsys == nil {
				continue
			}
			packed, err := sandbox.Pack(tree.fsys)
			if err != nil {
				return nil, fmt.Errorf("%s%s: %w", p.folder(), tree.name, err)
			}
			*tree.into = packed
		}
		proved = append(proved, p)
	}
	return proved, nil
}

// nothing leaves the workspace as the steps before have left it.
func (p *prover) nothing(_ context.Context, _ provedStep, changes []byte) ([]byte, error) {
	return changes, nil
}

// attempt goes through the steps as an agent that works on each as act does, up to one whose verdict is too low for the next, and composes their
// verdicts.
func (p *prover) attempt(ctx context.Context, act func(context.Context, provedStep, []byte) ([]byte, error), want float64) Attempt {
	var whole Attempt
	var changes []byte
	var ended []events.EndedStep
	for i, step := range p.steps {
		var err error
		if changes, err = act(ctx, step, changes); err != nil {
			return Attempt{Class: "solution", Error: err.Error()}
		}
		one, components := p.score(ctx, step, changes, want)
		if one.Reward == nil || step.Name == "" {
			one.Error = inStep(step, one.Error)
			return one
		}
		whole.Duration += one.Duration
		whole.Changed, whole.ExitCode, whole.Log = one.Changed, one.ExitCode, one.Log
		ended = append(ended, events.EndedStep{StepFinished: events.StepFinished{Step: i}, Verdict: &events.StepScored{Step: i, Components: components}})
		if !(events.StepSpec{MinReward: step.MinReward}).Passes(components) {
			break
		}
	}
	components, err := events.TaskSpec{RewardStrategy: p.task.RewardStrategy}.Compose(ended)
	if err != nil {
		return Attempt{Class: "steps", Error: err.Error()}
	}
	reward := components[events.RewardComponent]
	whole.Reward = &reward
	return whole
}

// inStep says in which step something went wrong.
func inStep(step provedStep, problem string) string {
	if step.Name == "" {
		return problem
	}
	return "step " + step.Name + ": " + problem
}
