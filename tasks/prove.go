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

// provedStage is a stage with its trees packed. A task without stages is one
// of them, without a name.
type provedStage struct {
	Stage
	tests, solution, files []byte
}

// folder is where the stage's files lie in the task's folder.
func (s provedStage) folder() string {
	if s.Name == "" {
		return ""
	}
	return "steps/" + s.Name + "/"
}

func provedStages(task *Task) ([]provedStage, error) {
	stages := task.Stages
	if len(stages) == 0 {
		stages = []Stage{{VerifierTimeout: task.VerifierTimeout, VerifierEnv: task.VerifierEnv, Collect: task.Collect,
			Tests: task.Tests, Solution: task.Solution}}
	}
	var proved []provedStage
	for _, stage := range stages {
		p := provedStage{Stage: stage}
		for _, tree := range []struct {
			name string
			fsys fs.FS
			into *[]byte
		}{{"tests", stage.Tests, &p.tests}, {"solution", stage.Solution, &p.solution},
			{"workdir", stage.Files, &p.files}} {
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

// nothing leaves the workspace as the stages before have left it.
func (p *prover) nothing(_ context.Context, _ provedStage, changes []byte) ([]byte, error) {
	return changes, nil
}

// attempt goes through the stages as an agent that works on each as act does, up to one whose
// verdict is too low for the next, and composes their verdicts.
func (p *prover) attempt(ctx context.Context, act func(context.Context, provedStage, []byte) ([]byte, error),
	want float64) Attempt {
	var whole Attempt
	var changes []byte
	var ended []events.EndedStep
	for i, stage := range p.stages {
		var err error
		if changes, err = p.begin(ctx, stage, changes); err != nil {
			return notBegun(stage, err)
		}
		if changes, err = act(ctx, stage, changes); err != nil {
			return Attempt{Class: "solution", Error: err.Error()}
		}
		one, components := p.score(ctx, stage, changes, want)
		if one.Reward == nil || stage.Name == "" {
			one.Error = inStage(stage, one.Error)
			return one
		}
		whole.Duration += one.Duration
		whole.Changed, whole.ExitCode, whole.Log = one.Changed, one.ExitCode, one.Log
		whole.Restored = append(whole.Restored, one.Restored...)
		if whole.Verifier == "" || whole.Verifier == verifier.Separate {
			whole.Verifier = one.Verifier
		}
		ended = append(ended, events.EndedStep{StepFinished: events.StepFinished{Step: i},
			Verdict: &events.StepScored{Step: i, Components: components}})
		if !(runfile.StepSpec{MinReward: stage.MinReward}).Passes(components) {
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

// begin makes the workspace that a stage begins with, as the scorer does, and runs the
// stage's health check there.
func (p *prover) begin(ctx context.Context, stage provedStage, changes []byte) ([]byte, error) {
	if stage.files != nil {
		spec, err := p.spec(ctx, stage, changes)
		if err != nil {
			return nil, err
		}
		spec.Env = p.boxes.Env(nil)
		if changes, err = verifier.Apply(ctx, spec, stage.Name, stage.files); err != nil {
			return nil, err
		}
	}
	if stage.Healthcheck == nil {
		return changes, nil
	}
	return changes, p.healthy(ctx, "steps.healthcheck", stage.Healthcheck, changes)
}

// notBegun is an attempt that came to a stage which cannot begin.
func notBegun(stage provedStage, err error) Attempt {
	attempt := Attempt{Class: "healthcheck", Error: inStage(stage, err.Error()), cause: err}
	if failed, ok := errors.AsType[*verifier.Error](err); ok {
		attempt.Class, attempt.Log = failed.Class, tail(failed.Log)
		attempt.Error = strings.TrimSpace(err.Error() + ": " + attempt.Log)
	}
	return attempt
}

// inStage says in which stage something went wrong.
func inStage(stage provedStage, problem string) string {
	if stage.Name == "" {
		return problem
	}
	return "stage " + stage.Name + ": " + problem
}
