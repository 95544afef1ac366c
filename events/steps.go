package events

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/storage"
)

// This file is about tasks of several steps. Their agent is given one instruction after the other
// in the same workspace: when it has ended a step, that is verified with the step's own tests, and
// the verdict decides whether the next instruction follows.

// StepFinished ends a step of a task that has several.
type StepFinished struct {
	Step       int          `json:"step" jsonschema:"minimum=0"` // from 0
	StopReason string       `json:"stop_reason"`
	Turns      int          `json:"turns"` // of the rollout until now; the next step's first turn has this number
	Workspace  *storage.Ref `json:"workspace,omitempty"`
}

// StepScored is the verifier's verdict on a step, before anything else happens in the rollout.
type StepScored struct {
	Step       int                `json:"step" jsonschema:"minimum=0"`
	Components map[string]float64 `json:"components"`
	ExitCode   int                `json:"exit_code"`
	Log        *storage.Ref       `json:"log,omitempty"`
	DurationMS float64            `json:"duration_ms"`
	// Workspace is what the next step begins with, as a change against the snapshot: the agent's,
	// with the files of that step laid over it. Without it the next step, if there is one, begins
	// with what the agent has left. An empty object is the snapshot itself.
	Workspace *storage.Ref `json:"workspace,omitempty"`
	// Tests, Flags, Forfeit, Isolation, Filesystem, User, Build and Verifier are as in
	// RolloutScored. A forfeit ends the rollout.
	Flags      []string     `json:"flags,omitempty" jsonschema:"maxItems=50"`
	Forfeit    *Forfeit     `json:"forfeit,omitempty"`
	Isolation  string       `json:"isolation,omitempty"`
	Filesystem string       `json:"filesystem,omitempty"`
	User       string       `json:"user,omitempty"`
	Build      string       `json:"build,omitempty"`
	Verifier   string       `json:"verifier,omitempty"`
	Tests      *grade.Tests `json:"tests,omitempty"`
}

// EndedStep is a step of a rollout that its agent has ended.
type EndedStep struct {
	StepFinished
	Verdict *StepScored // nil until it is scored
}

// ComposeSteps makes a rollout's components of those of its steps' verdicts, by the task's
// strategy. A component that a step did not report counts as 0 in a mean; steps that were
// never begun count nothing.
func ComposeSteps(t runfile.TaskSpec, steps []EndedStep) (map[string]float64, error) {
	var verdicts []map[string]float64
	for _, s := range steps {
		if s.Verdict == nil {
			return nil, fmt.Errorf("step %d has no verdict", s.Step)
		}
		verdicts = append(verdicts, s.Verdict.Components)
	}
	if len(verdicts) == 0 {
		return nil, fmt.Errorf("no step has a verdict")
	}
	if t.RewardStrategy == runfile.StrategyFinal {
		return maps.Clone(verdicts[len(verdicts)-1]), nil
	}
	composed := map[string]float64{}
	for _, v := range verdicts {
		for name, value := range v {
			composed[name] += value
		}
	}
	for name, sum := range composed {
		if composed[name] = sum / float64(len(verdicts)); math.IsInf(composed[name], 0) {
			return nil, fmt.Errorf("the mean of %.100q is not finite", name)
		}
	}
	return composed, nil
}

// StepToScore is the last ended step where it awaits its verdict, else nil.
func (r *Rollout) StepToScore() *EndedStep {
	if n := len(r.Steps); n > 0 && r.Steps[n-1].Verdict == nil {
		return &r.Steps[n-1]
	}
	return nil
}

// StepBegin is the number of the first turn of a step that was begun.
func (r *Rollout) StepBegin(step int) int {
	if step == 0 || step > len(r.Steps) {
		return 0
	}
	return r.Steps[step-1].Turns
}

// Laid is the workspace that a step's files were laid into before this turn, its first one;
// nil where there were none.
func (r *Rollout) Laid(turn int) *storage.Ref {
	for _, s := range r.Steps {
		if s.Turns == turn && s.Verdict != nil {
			return s.Verdict.Workspace
		}
	}
	return nil
}

// WasLaid reports whether any step has brought files into the workspace.
func (r *Rollout) WasLaid() bool {
	return slices.ContainsFunc(r.Steps, func(s EndedStep) bool {
		return s.Verdict != nil &&
			s.Verdict.Workspace != nil
	})
}

// Workspace is the change against the snapshot that the workspace is now, nil for none.
func (r *Rollout) Workspace() *storage.Ref {
	if n := len(r.Answers); n > 0 {
		return r.Answers[n-1].Workspace
	}
	if laid := r.Laid(len(r.Turns)); laid != nil {
		return laid
	}
	return r.leftBy(len(r.Turns) - 1)
}

// leftBy is the workspace behind a turn. A turn that asked for no tools leaves it as it was.
func (r *Rollout) leftBy(turn int) *storage.Ref {
	for ; turn >= 0; turn-- {
		if done, ok := r.Tools.Get(turn); ok {
			return done.Workspace
		}
		if laid := r.Laid(turn); laid != nil {
			return laid
		}
	}
	return nil
}

// StepOf is the step that a turn belongs to; a task without steps has one.
func (r *Rollout) StepOf(turn int) int {
	step := 0
	for step < len(r.Steps) && turn >= r.Steps[step].Turns {
		step++
	}
	return step
}

func (r *Rollout) stepFinished(e Event) error {
	ended, err := Data[StepFinished](e)
	if err == nil && (ended.Step != len(r.Steps) || r.StepToScore() != nil) {
		return fmt.Errorf("%s: %w: it ends step %d after %d steps", e.ID, ErrMalformed, ended.Step, len(r.Steps))
	}
	r.Steps = append(r.Steps, EndedStep{StepFinished: ended})
	return err
}

func (r *Rollout) stepScored(e Event) error {
	verdict, err := data[StepScored](e)
	if err != nil {
		return err
	}
	last := r.StepToScore()
	if last == nil || last.Step != verdict.Step {
		return fmt.Errorf("%s: %w: it scores step %d, which has not ended or has its verdict", e.ID,
			ErrMalformed, verdict.Step)
	}
	last.Verdict = verdict
	return nil
}
