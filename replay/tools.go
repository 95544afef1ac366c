package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/toolrunner"
)

// ToolsReplayed is what tool calls and verifiers came to when they ran again.
type ToolsReplayed struct {
	Run      string `json:"run"`
	Rollouts int    `json:"rollouts"`
	Turns    int    `json:"turns"`
	Calls    int    `json:"calls"`
	Outside  int    `json:"outside"`  // calls of servers outside of the sandbox, which are not made again
	Agent    int    `json:"agent"`    // turns of agents, which ran their calls themselves: they are not run again
	Verified int    `json:"verified"` // rollouts whose verifier ran again
	// Different are the rollouts in which anything came out differently, and
	// Differences counts what did.
	Different   int                `json:"different"`
	Differences int                `json:"differences"`
	Details     []pipeline.Changed `json:"details"`
	// Errors are the rollouts that could not be run again.
	Errors  []string `json:"errors"`
	Seconds float64  `json:"seconds"`
}

// maxChanged bounds the differences that are listed; all are counted.
const maxChanged = 1000

// Tools runs the recorded tool calls of the chosen rollouts of a run again, turn by turn, and then
// their verifiers. progress, if set, receives the result so far after each rollout.
func Tools(ctx context.Context, log eventlog.Reader, run string, chosen *Chosen, o Sandboxes,
	progress func(ToolsReplayed)) (ToolsReplayed, error) {
	t := ToolsReplayed{Run: run, Details: []pipeline.Changed{}, Errors: []string{}}
	cfg, err := log.RecordedConfig(ctx, run)
	if err != nil {
		return t, err
	}
	for r, err := range inOrder(ctx, chosen.filter(log.Rollouts(ctx, run)), o.Slots, o.repeater(log, cfg)) {
		if err != nil {
			return t, err
		}
		t.add(r)
		if progress != nil {
			progress(t)
		}
	}
	if missing := chosen.missing(); len(missing) > 0 {
		return t, fmt.Errorf("--rollouts: run %s has no rollout %v that has its outcome: `rondo trajectories list %s` lists them", run, missing, run)
	}
	return t, nil
}

// repeated is one rollout that was run again.
type repeated struct {
	toolrunner.Repeated
	verified bool
	err      error // it could not be
}

// repeater runs rollouts again: first their tools, then the verifier over the recorded workspace.
func (o Sandboxes) repeater(log eventlog.Reader, cfg runfile.RunConfig) func(context.Context,
	eventlog.Ended) (repeated, error) {
	tools := toolrunner.Options{Machine: o.Machine}
	verifiers := o.scorer()
	return func(ctx context.Context, r eventlog.Ended) (repeated, error) {
		task, err := r.Task(cfg)
		if errors.Is(err, runfile.ErrNoTask) && len(r.Turns) == 0 {
			return repeated{}, nil // an outsider's, on a task of its own
		}
		var again repeated
		if err == nil {
			again.Repeated, err = toolrunner.Rerun(ctx, log.Store(), tools, cfg, task, &r.Rollout)
		}
		if err == nil {
			var changed []pipeline.Changed
			changed, err = scorer.Compare(ctx, log.Store(), verifiers, cfg, task, &r)
			again.verified = err == nil
			again.Changed = append(again.Changed, changed...)
		}
		if !errors.Is(err, scorer.ErrNothingToVerify) {
			again.err = err
		}
		return again, ctx.Err()
	}
}

func (t *ToolsReplayed) add(r repeated) {
	t.Rollouts++
	t.Turns += r.Turns
	t.Calls += r.Calls
	t.Outside += r.Outside
	t.Agent += r.Agent
	if r.verified {
		t.Verified++
	}
	if r.err != nil {
		t.Errors = append(t.Errors, r.err.Error())
	}
	if len(r.Changed) > 0 {
		t.Different++
	}
	t.Differences += len(r.Changed)
	t.Details = append(t.Details, r.Changed[:min(len(r.Changed), maxChanged-len(t.Details))]...)
}

// Line says how far the work is.
func (t *ToolsReplayed) Line() string {
	return fmt.Sprintf("%d rollouts: %d turns with %d calls run again, %d verified; %d differences in %d rollouts",
		t.Rollouts, t.Turns, t.Calls, t.Verified, t.Differences, t.Different)
}
