package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/export/episode"
)

// FindRollout reads a rollout's chain from its run's stream or archive. Without a run's name, the
// one run that has the rollout is meant.
func FindRollout(ctx context.Context, p *Plane, run, rollout string) (*events.Rollout, error) {
	if !runfile.ValidToken(rollout) {
		return nil, fmt.Errorf("rollout %q: give an id such as g000003-1", app.Line(rollout, 80))
	}
	runs := []string{run}
	if run == "" {
		var err error
		if runs, err = p.Log.AllRuns(ctx); err != nil {
			return nil, err
		}
	} else if err := p.MustRun(ctx, run); err != nil {
		return nil, err
	}
	var found []events.Event
	var in []string
	for _, name := range runs {
		links, err := rolloutLinks(ctx, p.Log, name, rollout)
		if err != nil {
			return nil, err
		}
		if len(links) > 0 {
			found, in = links, append(in, name)
		}
	}
	switch {
	case len(in) == 0 && run != "":
		return nil, fmt.Errorf("run %s has no rollout %s: `rondo trajectories list %s` lists those that have a trajectory", run, rollout, run)
	case len(in) == 0:
		return nil, fmt.Errorf("no run has a rollout %s: `rondo run list` lists the runs", rollout)
	case len(in) > 1:
		return nil, fmt.Errorf("%d runs have a rollout %s: name one by --run (%s)", len(in),
			rollout, strings.Join(in, ", "))
	}
	r, err := events.FoldRollout(found)
	return &r, err
}

// rolloutLinks reads a rollout's chain, nothing where the run has no such rollout.
func rolloutLinks(ctx context.Context, log *eventlog.Log, run, rollout string) ([]events.Event, error) {
	if _, err := log.Incarnation(ctx, run); errors.Is(err, eventlog.ErrNotFound) {
		chains, err := episode.ChainsOf(ctx, log.Reader, run, rollout) // of its archive
		return chains[episode.RolloutKind], err
	} else if err != nil {
		return nil, err
	}
	last, err := log.Last(ctx, run, episode.RolloutKind, rollout)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return log.History(ctx, run, last.Seq)
}

// TaskOf finds the task of a rollout, which may be a query, in its run's stream or archive.
func TaskOf(ctx context.Context, log *eventlog.Log, r *events.Rollout) (runfile.TaskSpec, error) {
	task, err := log.Task(ctx, r.Run, r.Started.Task)
	if !errors.Is(err, eventlog.ErrNotFound) {
		return task, err
	}
	cfg, err := log.RecordedConfig(ctx, r.Run)
	if err != nil {
		return task, err
	}
	if task, err = cfg.Task(r.Started.Task); err == nil {
		return task, nil
	}
	for e, readErr := range log.All(ctx, r.Run, 1) {
		if readErr != nil {
			return task, readErr
		}
		if e.Type != events.QuerySubmittedType || e.Entity != r.Started.Task {
			continue
		}
		query, err := events.Data[events.QuerySubmitted](e)
		if err != nil {
			return task, err
		}
		if task, err = cfg.Task(query.Task); err != nil {
			return task, err
		}
		return query.TaskSpec(e.Entity, task), nil
	}
	return task, err
}
