package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/toolrunner"
)

// toolsReplayed is what `rondo replay --tools` answers.
type toolsReplayed struct {
	Run      string `json:"run"`
	Rollouts int    `json:"rollouts"`
	Turns    int    `json:"turns"`
	Calls    int    `json:"calls"`
	Outside  int    `json:"outside"`  // calls of servers outside of the sandbox, which are not made again
	Verified int    `json:"verified"` // rollouts whose verifier ran again
	// Different are the rollouts in which anything came out differently, and Differences counts what did.
	Different   int               `json:"different"`
	Differences int               `json:"differences"`
	Details     []runtime.Changed `json:"details"`
	// Errors are the rollouts that could not be run again.
	Errors  []string `json:"errors"`
	Seconds float64  `json:"seconds"`
}

// maxChanged bounds the differences that are listed; all are counted.
const maxChanged = 1000

// replayTools runs the recorded tool calls and verifiers of a run again.
func replayTools(cmd *cobra.Command, g *global, p *plane, run string, o replayOptions) error {
	ctx, began := cmd.Context(), time.Now()
	if err := checkSandbox(ctx, needSandbox, o.settings); err != nil {
		return err
	}
	cfg, err := p.log.RecordedConfig(ctx, run)
	if err != nil {
		return err
	}
	chosen, err := chooseRollouts(o.rollouts)
	if err != nil {
		return err
	}
	t := toolsReplayed{Run: run, Details: []runtime.Changed{}, Errors: []string{}}
	show, last := newProgress(g), began
	for r, err := range inOrder(ctx, chosen.of(p.log.Rollouts(ctx, run)), o.slots, o.repeater(p.log, cfg)) {
		if err != nil {
			return err
		}
		t.add(r)
		show.show("%s", t.line())
		if time.Since(last) > plainEvery && !show.terminal {
			last = time.Now()
			show.line("%s", t.line())
		}
	}
	show.clear()
	if missing := chosen.missing(); len(missing) > 0 {
		return fmt.Errorf("--rollouts: run %s has no rollout %v that has its outcome", run, missing)
	}
	t.Seconds = time.Since(began).Seconds()
	if err := printToolsReplayed(cmd.OutOrStdout(), g, t); err != nil {
		return err
	}
	switch {
	case t.Differences > 0:
		return &exitError{found, fmt.Errorf("replay of %s: %d differences in %d rollouts", run, t.Differences, t.Different)}
	case len(t.Errors) > 0:
		return fmt.Errorf("replay of %s: %d rollouts could not be run again: %s", run, len(t.Errors), t.Errors[0])
	}
	return nil
}

// plainEvery is how often a pipe is told how far long work is.
const plainEvery = 10 * time.Second

// repeated is one rollout that was run again.
type repeated struct {
	toolrunner.Repeated
	verified bool
	err      error // it could not be
}

// repeater runs rollouts again: first their tools, then the verifier over the recorded workspace.
func (o replayOptions) repeater(log *eventlog.Log, cfg events.RunConfig) func(context.Context, eventlog.Ended) (repeated, error) {
	tools := toolrunner.Options{AllowInsecure: o.allowInsecure, ToolchainCache: o.toolchainCache}
	verifiers := scorer.Options{AllowInsecure: o.allowInsecure, ToolchainCache: o.toolchainCache}
	return func(ctx context.Context, r eventlog.Ended) (repeated, error) {
		task, err := r.Task(cfg)
		if errors.Is(err, events.ErrNoTask) && len(r.Turns) == 0 {
			return repeated{}, nil // an outsider's, on a task of its own
		}
		var again repeated
		if err == nil {
			again.Repeated, err = toolrunner.Again(ctx, log, tools, cfg, task, &r.Rollout)
		}
		if err == nil {
			var changed []runtime.Changed
			changed, err = scorer.Compare(ctx, log, verifiers, cfg, task, &r)
			again.verified = err == nil
			again.Changed = append(again.Changed, changed...)
		}
		if !errors.Is(err, scorer.ErrNothingToVerify) {
			again.err = err
		}
		return again, ctx.Err()
	}
}

func (t *toolsReplayed) add(r repeated) {
	t.Rollouts++
	t.Turns += r.Turns
	t.Calls += r.Calls
	t.Outside += r.Outside
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

func (t *toolsReplayed) line() string {
	return fmt.Sprintf("%d rollouts: %d turns with %d calls run again, %d verified; %d differences in %d rollouts", t.Rollouts, t.Turns, t.Calls, t.Verified, t.Differences, t.Different)
}

func printToolsReplayed(w io.Writer, g *global, t toolsReplayed) error {
	if g.json {
		return printJSON(w, t)
	}
	for _, c := range t.Details {
		place := c.Rollout
		if c.Turn != nil {
			place += fmt.Sprintf(" turn %d", *c.Turn)
		} else {
			place += " verifier"
		}
		if c.Call != "" {
			place += fmt.Sprintf(" call %.64q (%.64q)", c.Call, c.Tool)
		}
		fmt.Fprintf(w, "%s: %q was %q, comes out as %q\n", place, c.Field, c.Recorded, c.Again)
	}
	if more := t.Differences - len(t.Details); more > 0 {
		fmt.Fprintf(w, "… and %d differences more\n", more)
	}
	for _, e := range t.Errors {
		fmt.Fprintf(w, "not run again: %s\n", e)
	}
	if t.Outside > 0 {
		fmt.Fprintf(w, "%d calls of servers outside of the sandbox were not made again: their answers are taken as recorded\n", t.Outside)
	}
	_, err := fmt.Fprintf(w, "%s (%.1f s)\n", t.line(), t.Seconds)
	return err
}
