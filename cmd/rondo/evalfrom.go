package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/services/scorer"
)

// recorded evaluates the rollouts of a run as they are, or as another scorer sees them.
func (e *evaluator) recorded(ctx context.Context) error {
	if strings.Contains(e.o.against, "@") {
		return fmt.Errorf("--against %s: recorded rollouts are compared with those of another RUN; leave out --from to evaluate versions", e.o.against)
	}
	for _, setting := range e.o.set {
		if !strings.HasPrefix(setting, "scorer.") {
			return fmt.Errorf("--set %s: an evaluation of recorded rollouts can change how they are scored: scorer.weights.NAME, scorer.threshold", setting)
		}
	}
	return withPlane(ctx, e.g, func(ctx context.Context, p *plane) error {
		e.p = p
		again, err := e.newRescoring(ctx)
		if err != nil {
			return err
		}
		m, err := e.measureRecorded(ctx, e.o.from, again)
		if err != nil {
			return err
		}
		report := e.report(m)
		if e.o.against != "" {
			if e.o.against == e.o.from {
				again = nil // what another scorer makes of the same rollouts
			}
			other, err := e.measureRecorded(ctx, e.o.against, again)
			if err == nil {
				report, err = e.compare(report, m, other)
			}
			if err != nil {
				return fmt.Errorf("--against %s: %w", e.o.against, err)
			}
		}
		if e.o.logprobs != "" {
			if report.OffPolicy, err = e.offPolicy(ctx, m); err != nil {
				return err
			}
		}
		return e.publish(report, m)
	})
}

// measureRecorded summarises a recorded run; again may be nil.
func (e *evaluator) measureRecorded(ctx context.Context, run string, again *rescoring) (measured, error) {
	if err := e.p.mustRun(ctx, run); err != nil {
		return measured{}, err
	}
	f, err := readEvaluated(ctx, e.p.log, run)
	if err != nil {
		return measured{}, err
	}
	attempts, notes := f.attempts()
	name := run
	if again != nil {
		note, err := again.all(ctx, f.Config, run, attempts)
		if err != nil {
			return measured{}, fmt.Errorf("score run %s again: %w", run, err)
		}
		name, notes = name+", scored again", append(notes, note...)
	}
	return e.summarise(f, name, attempts, notes)
}

// rescoring is another scorer for recorded rollouts: the verifiers with the tests of --tasks, or the numbers that they reported
// composed as --set says.
type rescoring struct{ *evaluator }

// newRescoring is nil where the flags ask for none.
func (e *evaluator) newRescoring(ctx context.Context) (*rescoring, error) {
	if e.o.tasks == "" && len(e.o.set) == 0 {
		return nil, nil
	}
	if e.o.tasks == "" {
		return &rescoring{e}, nil
	}
	list, err := loadTasks(e.o.tasks)
	if err != nil {
		return nil, err
	}
	if err := checkSandbox(ctx, []string{events.Scorer}, e.s); err != nil {
		return nil, err
	}
	return &rescoring{e}, warmToolchains(ctx, e.show, list, e.s)
}

// all scores attempts again, in place. Those that failed before they were scored stay failed; what the new scorer gives no verdict on
// fails now.
func (r *rescoring) all(ctx context.Context, cfg events.RunConfig, run string, attempts []evaluation.Attempt) (notes []string, err error) {
	if cfg, err = changed(cfg, r.o.set); err != nil {
		return nil, err
	}
	if r.o.tasks != "" {
		cfg, err = withTests(ctx, r.p, r.show, cfg, r.o.tasks)
	} else {
		err = checkComponents(ctx, r.p.log, run, cfg.Scorer)
	}
	if err != nil {
		return nil, err
	}
	byID := map[string]*evaluation.Attempt{}
	for i := range attempts {
		byID[attempts[i].Rollout] = &attempts[i]
	}
	done, failed, reason := 0, 0, ""
	verdicts := inOrder(ctx, r.p.log.Rollouts(ctx, run), max(1, r.s.scorerSlots), func(ctx context.Context, ended eventlog.Ended) (verdict, error) {
		if byID[ended.ID] == nil || !scored(ended) || ended.Scored == nil && r.o.tasks == "" {
			return verdict{}, nil // it does not count, or its reward is not the scorer's to give
		}
		return r.one(ctx, cfg, ended)
	})
	for v, err := range verdicts {
		if err != nil {
			return nil, err
		}
		a := byID[v.rollout]
		if a == nil {
			continue
		}
		a.Reward, a.Failed = v.reward, v.failed != ""
		if a.Failed {
			if failed++; failed == 1 {
				reason = v.rollout + ": " + v.failed
			}
		}
		done++
		r.show.show("%d of %d rollouts scored again", done, len(byID))
	}
	if failed > 0 {
		notes = append(notes, fmt.Sprintf("%d rollouts get no verdict by this scorer and count as failed; the first, %s", failed, reason))
	}
	return notes, nil
}

// verdict is a rollout's new reward, or why there is none.
type verdict struct {
	rollout string
	reward  float64
	failed  string
}

// one scores a rollout again. Where there is nothing that could be scored, the recorded reward stays.
func (r *rescoring) one(ctx context.Context, cfg events.RunConfig, ended eventlog.Ended) (verdict, error) {
	v := verdict{rollout: ended.ID}
	if ended.Scored != nil {
		v.reward = ended.Scored.Reward
	} else {
		v.failed = ended.Failed.Message
	}
	var task events.TaskSpec
	err := events.ErrNoTask
	if r.o.tasks != "" {
		task, err = ended.Task(cfg)
	}
	var again events.RolloutScored
	switch {
	case errors.Is(err, events.ErrNoTask) && ended.Scored == nil:
		return v, nil
	case errors.Is(err, events.ErrNoTask): // no tests are asked for, or it is an outsider's, on a task of its own
		again, err = scorer.Recompose(cfg.Scorer, ended.Outcome)
	case err == nil:
		opts := scorer.Options{AllowInsecure: r.s.allowInsecure, ToolchainCache: r.s.toolchainCache}
		again, err = scorer.Again(ctx, r.p.log, opts, cfg, task, &ended.Rollout)
	}
	if errors.Is(err, scorer.ErrNothingToVerify) {
		return v, nil
	}
	_, fact, err := scorer.Outcome(again, err)
	switch fact := fact.(type) {
	case events.RolloutScored:
		v.reward, v.failed = fact.Reward, ""
	case events.RolloutFailed:
		v.reward, v.failed = 0, fact.Message
	}
	return v, err
}
