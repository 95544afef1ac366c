package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// provedStep is a step with its trees packed. A task without steps is one of them, without a name.
type provedStep struct {
	Step
	tests, solution, files []byte
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
		}{{"tests", step.Tests, &p.tests}, {"solution", step.Solution, &p.solution}, {"workdir", step.Files, &p.files}} {
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
		if changes, err = p.begin(ctx, step, changes); err != nil {
			return notBegun(step, err)
		}
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
		if whole.Verifier != verifier.InProcess {
			whole.Verifier = one.Verifier
		}
		ended = append(ended, events.EndedStep{StepFinished: events.StepFinished{Step: i}, Verdict: &events.StepScored{Step: i, Components: components}})
		if !(runfile.StepSpec{MinReward: step.MinReward}).Passes(components) {
			break
		}
	}
	components, err := events.ComposeSteps(runfile.TaskSpec{RewardStrategy: p.task.RewardStrategy}, ended)
	if err != nil {
		return Attempt{Class: "steps", Error: err.Error()}
	}
	reward := components[runfile.RewardComponent]
	whole.Reward = &reward
	return whole
}

// begin makes the workspace that a step begins with, as the scorer does, and runs the step's health check there.
func (p *prover) begin(ctx context.Context, step provedStep, changes []byte) ([]byte, error) {
	if step.files != nil {
		spec := p.spec(step, changes)
		spec.Env = p.boxes.Env(nil)
		var err error
		if changes, err = verifier.Apply(ctx, spec, step.Name, step.files); err != nil {
			return nil, err
		}
	}
	if step.Healthcheck == nil {
		return changes, nil
	}
	return changes, p.healthy(ctx, "steps.healthcheck", step.Healthcheck, changes)
}

// notBegun is an attempt that came to a step which cannot begin.
func notBegun(step provedStep, err error) Attempt {
	attempt := Attempt{Class: "healthcheck", Error: inStep(step, err.Error()), cause: err}
	if failed, ok := errors.AsType[*verifier.Error](err); ok {
		attempt.Class, attempt.Log = failed.Class, tail(failed.Log)
		attempt.Error = strings.TrimSpace(err.Error() + ": " + attempt.Log)
	}
	return attempt
}

// inStep says in which step something went wrong.
func inStep(step provedStep, problem string) string {
	if step.Name == "" {
		return problem
	}
	return "step " + step.Name + ": " + problem
}
