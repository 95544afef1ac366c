package intake

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// admitFork checks that there is something to go on with behind the turn, and that somebody would.
func (s *Service) admitFork(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.RolloutForked) error {
	switch {
	case cfg.Epochs > 0:
		return refuse("run %s is an evaluation: a group that begins half way would count among its tries", fact.Run)
	case len(cfg.Servers()) == 0:
		return refuse("run %s has no endpoint: nobody would go on", fact.Run)
	}
	r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuseRollout(fact)
	}
	if err != nil {
		return err
	}
	if p.Task != r.Started.Task {
		return refuse("task %.100q: rollout %s was started on task %q", p.Task, r.ID, r.Started.Task)
	}
	if _, err := r.Fork(p.Turn, cfg.Limits); err != nil {
		return refuse("%v", err)
	}
	if err := s.admitClosed(ctx, fact); err != nil {
		return err
	}
	return s.admitFill(ctx, fact)
}
