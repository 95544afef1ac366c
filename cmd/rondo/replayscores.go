package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/scorer"
)

// outcomeAgain gives what takes the place of a recorded outcome; see runtime.Rerun.
type outcomeAgain func(ctx context.Context, recorded events.Event) (*events.Event, error)

// recomposed makes rewards of the components that were recorded. Rollouts without a verdict stay without one.
func recomposed(as string, s events.Scoring) outcomeAgain {
	return func(_ context.Context, e events.Event) (*events.Event, error) {
		if e.Type != events.RolloutScoredType || runtime.OriginalSource(e) != events.Scorer {
			return nil, nil
		}
		return stated(as, e.Entity)(scorer.Outcome(scorer.Recompose(s, e)))
	}
}

// stated makes the new run's fact of what scoring a rollout gave.
func stated(as, rollout string) func(events.Type, any, error) (*events.Event, error) {
	return func(t events.Type, data any, err error) (*events.Event, error) {
		if err != nil {
			return nil, err
		}
		e, err := events.New(as, t, rollout, "0", data)
		return &e, err
	}
}

// checkComponents finds weights of components that no rollout of a run has: they would leave all without a reward. It reads no further
// than the first rollout that has all of them.
func checkComponents(ctx context.Context, log *eventlog.Log, run string, s events.Scoring) error {
	var missing error
	for r, err := range log.Rollouts(ctx, run) {
		if err != nil {
			return err
		}
		if r.Scored == nil || runtime.OriginalSource(r.Outcome) != events.Scorer {
			continue
		}
		_, err := s.Reward(r.Scored.Components)
		if !errors.Is(err, events.ErrNoComponent) {
			return nil
		}
		if missing == nil {
			missing = fmt.Errorf("scorer.weights: no rollout of run %s has all components that have a weight: rollout %s: %w", run, r.ID, err)
		}
	}
	return missing
}

// verifiedAgain runs the verifiers over recorded final workspaces, some rollouts ahead of the replay. stop ends it.
func verifiedAgain(ctx context.Context, p *plane, run string, o replayOptions, cfg events.RunConfig) (again outcomeAgain, stop func()) {
	opts := scorer.Options{AllowInsecure: o.allowInsecure, ToolchainCache: o.toolchainCache}
	next, stop := iter.Pull2(inOrder(ctx, p.log.Rollouts(ctx, run), o.slots, func(ctx context.Context, r eventlog.Ended) (rescored, error) {
		fact, err := rescore(ctx, p.log, opts, o.as, cfg, r)
		return rescored{r.Outcome.Seq, fact}, err
	}))
	var ahead rescored
	return func(_ context.Context, e events.Event) (*events.Event, error) {
		for ahead.seq < e.Seq {
			r, err, more := next()
			if err != nil {
				return nil, err
			}
			if !more {
				return nil, fmt.Errorf("rollout %s was not scored again: its chain cannot be followed", e.Entity)
			}
			ahead = r
		}
		if ahead.seq > e.Seq {
			return nil, nil // an outcome of what was never started
		}
		return ahead.fact, nil
	}, stop
}

// rescored is a new outcome, nil where the recorded one stays, and the sequence of the recorded one.
type rescored struct {
	seq  uint64
	fact *events.Event
}

// rescore verifies a rollout that the scorer gave its outcome. What a replay that was interrupted has stated already counts: a verifier
// may say something else the second time.
func rescore(ctx context.Context, log *eventlog.Log, opts scorer.Options, as string, cfg events.RunConfig, r eventlog.Ended) (*events.Event, error) {
	if !scored(r) {
		return nil, nil
	}
	for _, t := range []events.Type{events.RolloutScoredType, events.RolloutFailedType} {
		e, err := log.LastOfType(ctx, as, t, r.ID)
		if err == nil {
			return &e, nil
		}
		if !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
	}
	task, err := r.Task(cfg)
	if errors.Is(err, events.ErrNoTask) {
		return nil, nil // an outsider's, on a task of its own
	}
	if err != nil {
		return nil, err
	}
	fact, err := stated(as, r.ID)(scorer.Outcome(scorer.Again(ctx, log, opts, cfg, task, &r.Rollout)))
	if errors.Is(err, scorer.ErrNothingToVerify) {
		return nil, nil
	}
	return fact, err
}

// scored reports whether the scorer scored a rollout, or should have.
func scored(r eventlog.Ended) bool {
	if r.Scored != nil {
		return runtime.OriginalSource(r.Outcome) == events.Scorer
	}
	return r.Finished != nil && r.Failed.Stage == events.StageScorer && !events.External(r.ID)
}

// withTests replaces the tests of a run's tasks by those of a pack's tasks of the same names. The files that rollouts began with
// stay as they were recorded: their workspaces are changes against them.
func withTests(ctx context.Context, p *plane, show *progress, cfg events.RunConfig, dir string) (events.RunConfig, error) {
	list, err := loadTasks(dir)
	if err != nil {
		return cfg, err
	}
	pack, err := packTasks(ctx, p.store, list)
	if err != nil {
		return cfg, err
	}
	var replaced []string
	cfg.Tasks = slices.Clone(cfg.Tasks)
	for i, task := range cfg.Tasks {
		at := slices.IndexFunc(pack, func(t events.TaskSpec) bool { return t.Name == task.Name })
		if at < 0 {
			show.line("task %s is not in %s: it keeps its tests", task.Name, dir)
			continue
		}
		if pack[at].Snapshot != task.Snapshot {
			show.line("task %s begins with other files in %s: the recorded ones count", task.Name, dir)
		}
		task.Tests, task.VerifierEnv, task.VerifierTimeout, task.Digest = pack[at].Tests, pack[at].VerifierEnv, pack[at].VerifierTimeout, pack[at].Digest
		task.Steps, task.RewardStrategy = pack[at].Steps, pack[at].RewardStrategy
		cfg.Tasks[i] = task
		replaced = append(replaced, task.Name)
	}
	if len(replaced) == 0 {
		return cfg, fmt.Errorf("--tasks %s: it has none of the run's tasks", dir)
	}
	show.line("tests of %s are those in %s", strings.Join(replaced, ", "), dir)
	return cfg, nil
}
