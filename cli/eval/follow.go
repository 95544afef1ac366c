package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// follow evaluates one version after the other as they are published, and reports after each.
func (e *evaluator) follow(ctx context.Context) error {
	s, err := evaluation.ParseSubject(e.o.policy)
	if err == nil && s.Version != nil {
		err = fmt.Errorf("--policy %s: --follow evaluates all versions; --since names the first one", s)
	}
	if err != nil {
		return err
	}
	var points []evaluation.CurvePoint
	var last evaluation.Report
	check := func(ctx context.Context) error { return e.p.MustPolicy(ctx, s.Policy) }
	err = e.prepared(ctx, check, func(ctx context.Context) error {
		since, err := e.first(ctx, s)
		if err != nil {
			return err
		}
		e.show.Line("waiting for versions of policy %s from %d on", s.Policy, since)
		return e.versions(ctx, s, since, func(version int64) error {
			m, err := e.measure(ctx, evaluation.Subject{Policy: s.Policy, Version: &version}, e.versionRun(version))
			if err != nil {
				return err
			}
			if m.missing != "" {
				return fmt.Errorf("run %s: %s", m.run, m.missing)
			}
			point := m.summary.Point(version, m.run, m.when.UTC())
			points = append(points, point)
			last = e.report(m)
			last.Title, last.Curve = fmt.Sprintf("Evaluation of %s, versions %d to %d", s.Policy,
				points[0].Version, version), points
			if err := e.write(last); err != nil {
				return err
			}
			return e.printPoint(point)
		})
	})
	if len(points) > 0 {
		err = errors.Join(e.printLast(last), err)
	}
	return err
}

// versionRun is the name of the run that evaluates a version, "" to derive it.
func (e *evaluator) versionRun(version int64) string {
	if e.o.run == "" {
		return ""
	}
	return fmt.Sprintf("%s-v%d", e.o.run, version)
}

// first is the first version to evaluate: --since, or the one after the current one.
func (e *evaluator) first(ctx context.Context, s evaluation.Subject) (int64, error) {
	if e.o.since >= 0 {
		return e.o.since, nil
	}
	current, _, err := weights.Current(ctx, e.p.Store, s.Policy)
	if errors.Is(err, storage.ErrNotFound) {
		return 1, nil
	}
	return current + 1, err
}

// manyVersions is how many published versions may wait for their evaluation; then the reader waits.
const manyVersions = 1024

// errLast: the last version is evaluated.
var errLast = errors.New("the last version is evaluated")

// versions calls fn with every version from one on, published already or coming, one after the
// other. Version 0 is there from the beginning.
func (e *evaluator) versions(ctx context.Context, s evaluation.Subject, since int64,
	fn func(version int64) error) error {
	group, ctx := errgroup.WithContext(ctx) // which ends with the first error, errLast among them
	waiting := make(chan int64, manyVersions)
	filter := events.Event{Run: events.Catalogue, Type: events.WeightsPublishedType, Entity: s.Policy}.Subject()
	group.Go(func() error {
		return e.p.Log.Follow(ctx, events.Catalogue, 1, filter, func(ev events.Event) error {
			published, err := events.Data[events.WeightsPublished](ev)
			if err != nil || published.Version < since {
				return err
			}
			select {
			case waiting <- published.Version:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	group.Go(func() error {
		if since == 0 {
			if err := e.one(0, fn); err != nil {
				return err
			}
		}
		for {
			select {
			case version := <-waiting:
				if err := e.one(version, fn); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err := group.Wait(); !errors.Is(err, errLast) {
		return err
	}
	return nil
}

// one evaluates a version, and ends the work with the last one.
func (e *evaluator) one(version int64, fn func(version int64) error) error {
	last := cmp.Or(e.o.until, version+1)
	if version > last {
		return errLast
	}
	if err := fn(version); err != nil {
		return err
	}
	if version == last {
		return errLast
	}
	return nil
}

// printPoint prints a version as soon as it is evaluated.
func (e *evaluator) printPoint(p evaluation.CurvePoint) error {
	if e.g.JSON {
		return app.PrintJSON(e.cmd.OutOrStdout(), p)
	}
	_, err := fmt.Fprintf(e.cmd.OutOrStdout(),
		"version %d  pass@1 %.3f [%.3f, %.3f]  reward %.3f  %d attempts, %d failed  run %s\n",
		p.Version, p.Pass.Value, p.Pass.Low, p.Pass.High, p.Reward.Value, p.Attempts, p.Failed, p.Run)
	return err
}

// printLast prints all that was evaluated.
func (e *evaluator) printLast(r evaluation.Report) error {
	if e.g.JSON {
		return app.PrintJSON(e.cmd.OutOrStdout(), r)
	}
	printCurve(e.cmd.OutOrStdout(), r.Curve)
	return nil
}
