package eval

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/replay"
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
	return withPlane(ctx, e.g, func(ctx context.Context, p *plane.Plane) error {
		e.p = p
		if err := e.checkOpponent(ctx); err != nil {
			return err
		}
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
		return e.Publish(report, m)
	})
}

// measureRecorded summarises a recorded run; again may be nil.
func (e *evaluator) measureRecorded(ctx context.Context, run string, again rescoring) (measured, error) {
	if err := e.p.MustRun(ctx, run); err != nil {
		return measured{}, err
	}
	f, err := evaluation.ReadRecorded(ctx, e.p.Log.Reader, run)
	if err != nil {
		return measured{}, err
	}
	attempts, notes := f.Attempts()
	name := run
	if again != nil {
		note, err := again(ctx, f.Config, run, attempts)
		if err != nil {
			return measured{}, fmt.Errorf("score run %s again: %w", run, err)
		}
		name, notes = name+", scored again", append(notes, note...)
	}
	return e.summarise(f, name, attempts, notes)
}

// rescoring scores attempts again, in place, and notes what it could not score.
type rescoring func(ctx context.Context, cfg runfile.RunConfig, run string,
	attempts []evaluation.Attempt) (notes []string, err error)

// newRescoring is nil where the flags ask for none.
func (e *evaluator) newRescoring(ctx context.Context) (rescoring, error) {
	if e.o.tasks == "" && len(e.o.set) == 0 {
		return nil, nil
	}
	if e.o.tasks == "" {
		return e.rescore, nil
	}
	list, err := opening.LoadTasks(e.o.tasks)
	if err != nil {
		return nil, err
	}
	if err := service.CheckSandbox(ctx, []string{topology.Scorer}, e.s); err != nil {
		return nil, err
	}
	return e.rescore, service.WarmToolchains(ctx, e.show, list, e.s)
}

// rescore runs the verifiers with the tests of --tasks, or composes the numbers that
// they reported as --set says.
func (e *evaluator) rescore(ctx context.Context, cfg runfile.RunConfig, run string,
	attempts []evaluation.Attempt) ([]string, error) {
	cfg, err := replay.Changed(cfg, e.o.set)
	if err != nil {
		return nil, err
	}
	if e.o.tasks != "" {
		cfg, err = opening.WithTests(ctx, e.p.Store, cfg, e.o.tasks, e.show.Line)
	} else {
		err = replay.CheckComponents(ctx, e.p.Log.Reader, run, cfg.Scorer)
	}
	if err != nil {
		return nil, err
	}
	return (&replay.Rescoring{
		Log: e.p.Log.Reader, Run: run, Config: cfg, Verifiers: e.o.tasks != "",
		Sandboxes: replay.Sandboxes{Slots: max(1, e.s.ScorerSlots), Machine: e.s.Machine},
		Progress:  func(done, of int) { e.show.Show("%d of %d rollouts scored again", done, of) },
	}).All(ctx, attempts)
}
