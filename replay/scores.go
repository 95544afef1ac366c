package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/scorer"
)

// outcomeAgain gives what takes the place of a recorded outcome; see pipeline.Rerun.
type outcomeAgain func(ctx context.Context, recorded events.Event) (*events.Event, error)

// recomposed makes rewards of the components that were recorded. Rollouts without a
// verdict stay without one.
func recomposed(as string, s runfile.Scoring) outcomeAgain {
	return func(_ context.Context, e events.Event) (*events.Event, error) {
		if e.Type != events.RolloutScoredType || pipeline.OriginalSource(e) != topology.Scorer {
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

// CheckComponents finds weights of components that no rollout of a run has: they would leave all
// without a reward. It reads no further than the first rollout that has all of them.
func CheckComponents(ctx context.Context, log eventlog.Reader, run string, s runfile.Scoring) error {
	var missing error
	for r, err := range log.Rollouts(ctx, run) {
		if err != nil {
			return err
		}
		if r.Scored == nil || pipeline.OriginalSource(r.Outcome) != topology.Scorer {
			continue
		}
		_, err := s.Reward(r.Scored.Components)
		if !errors.Is(err, runfile.ErrNoComponent) {
			return nil
		}
		if missing == nil {
			missing = fmt.Errorf("scorer.weights: no rollout of run %s has all components that have a weight: rollout %s: %w", run, r.ID, err)
		}
	}
	return missing
}

// verifiedAgain runs the verifiers over recorded final workspaces, some rollouts ahead of
// the replay. stop ends it.
func verifiedAgain(ctx context.Context, log eventlog.Reader, run, as string, cfg runfile.RunConfig,
	o Sandboxes) (again outcomeAgain, stop func()) {
	next, stop := iter.Pull2(inOrder(ctx, log.Rollouts(ctx, run), o.Slots,
		func(ctx context.Context, r eventlog.Ended) (rescored, error) {
			fact, err := rescore(ctx, log, o.scorer(), as, cfg, r)
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

// rescored is a new outcome, nil where the recorded one stays, and the
// sequence of the recorded one.
type rescored struct {
	seq  uint64
	fact *events.Event
}

// rescore verifies a rollout that the scorer gave its outcome. What a replay that was interrupted
// has stated already counts: a verifier may say something else the second time.
func rescore(ctx context.Context, log eventlog.Reader, opts scorer.Options, as string, cfg runfile.RunConfig,
	r eventlog.Ended) (*events.Event, error) {
	if !Scored(r) {
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
	if errors.Is(err, runfile.ErrNoTask) {
		return nil, nil // an outsider's, on a task of its own
	}
	if err != nil {
		return nil, err
	}
	fact, err := stated(as, r.ID)(scorer.Outcome(scorer.Rerun(ctx, log.Store(), opts, cfg, task, &r.Rollout)))
	if errors.Is(err, scorer.ErrNothingToVerify) {
		return nil, nil
	}
	return fact, err
}

// Scored reports whether the scorer scored a rollout, or should have.
func Scored(r eventlog.Ended) bool {
	if r.Scored != nil {
		return pipeline.OriginalSource(r.Outcome) == topology.Scorer
	}
	return r.Finished != nil && r.Failed.Stage == events.StageScorer && !events.External(r.ID)
}

// WithTests replaces the tests of a run's tasks by those of a pack's tasks of the same names. The
// files that rollouts began with stay as they were recorded: their workspaces are changes against
// them. dir is the pack's folder, as messages name it; note receives them.
func WithTests(cfg runfile.RunConfig, pack []runfile.TaskSpec, dir string,
	note func(format string, args ...any)) (runfile.RunConfig, error) {
	var replaced []string
	named := cfg.MinVerifier != ""
	cfg.Tasks = slices.Clone(cfg.Tasks)
	for i, task := range cfg.Tasks {
		at := slices.IndexFunc(pack, func(t runfile.TaskSpec) bool { return t.Name == task.Name })
		if at < 0 {
			note("task %s is not in %s: it keeps its tests", task.Name, dir)
			continue
		}
		if pack[at].Snapshot != task.Snapshot {
			note("task %s begins with other files in %s: the recorded ones count", task.Name, dir)
		}
		task.Tests, task.VerifierEnv, task.VerifierTimeout, task.Digest = pack[at].Tests, pack[at].VerifierEnv,
			pack[at].VerifierTimeout, pack[at].Digest
		task.Modules = pack[at].Modules
		// who names tests takes them
		if task.Verifier = pack[at].Verifier; !named && cfg.RequireVerifier(task.Verifier) != nil {
			cfg.MinVerifier = cmp.Or(task.Verifier, runfile.VerifierUnguarded)
			note("tests of task %s in %s run %s: code that they test can decide its own reward", task.Name, dir,
				cfg.MinVerifier)
		}
		task.Steps, task.RewardStrategy = pack[at].Steps, pack[at].RewardStrategy
		cfg.Tasks[i] = task
		replaced = append(replaced, task.Name)
	}
	if len(replaced) == 0 {
		return cfg, fmt.Errorf("--tasks %s: it has none of the run's tasks", dir)
	}
	note("tests of %s are those in %s", strings.Join(replaced, ", "), dir)
	return cfg, nil
}
