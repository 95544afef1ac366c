package intake

import (
	"context"
	"errors"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// admit checks a fact against what it is about, before it is linked.
func (s *Service) admit(ctx context.Context, m pipeline.Message, fact events.Event, payload any) (err error) {
	a := submitted{message: m, fact: fact, payload: payload}
	switch {
	case !fact.Type.CatalogueOnly():
		a.run, err = s.config(ctx, fact)
	case fact.Run != events.Catalogue:
		err = refuse("%s belongs to the catalogue: publish to %s", fact.Type,
			events.IntakeSubject(events.Catalogue, fact.Type, fact.Entity))
	}
	if err != nil {
		return err
	}
	if err := admitReferences(fact, payload); err != nil {
		return err
	}
	switch r := rules[fact.Type]; {
	case r.next != nil:
		return s.admitExternal(ctx, a)
	case r.admit != nil:
		return r.admit(s, ctx, a)
	}
	return nil
}

// config is the configuration of the run that a fact is about.
func (s *Service) config(ctx context.Context, fact events.Event) (runfile.RunConfig, error) {
	admit := admitRunName
	if fact.Type.Kind() == events.RunOpenedType.Kind() {
		admit = admitRun
	}
	if err := admit(fact); err != nil {
		return runfile.RunConfig{}, err
	}
	cfg, err := s.log.Config(ctx, fact.Run)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return cfg, refuse("there is no run %q: open it first", fact.Run)
	case errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject):
		return cfg, refuse("run %q cannot be read: %v", fact.Run, err)
	}
	return cfg, err
}

// admitRunName refuses names that no run can have.
func admitRunName(fact events.Event) error {
	if fact.Run == events.Catalogue {
		return refuse("%s: name a run instead of %q", fact.Type, events.Catalogue)
	}
	if !events.ValidRun(fact.Run) {
		return refuse("run %q: the name is reserved", fact.Run)
	}
	return nil
}

// admitRun checks a fact about a run itself.
func admitRun(fact events.Event) error {
	if err := admitRunName(fact); err != nil {
		return err
	}
	if fact.Entity != fact.Run {
		return refuse("%s: the entity of a run's facts is the run itself, %q, not %q", fact.Type, fact.Run, fact.Entity)
	}
	return nil
}

// admitStep refuses steps that the feed has not reached.
func (s *Service) admitStep(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	field string, step int64) error {
	if !slices.ContainsFunc(cfg.Feeds, func(f runfile.Feed) bool { return f.Name == fact.Entity }) {
		return refuse("run %s has no feed %q", fact.Run, fact.Entity)
	}
	reached, err := s.reachedStep(ctx, fact.Run, fact.Entity)
	if err != nil {
		return err
	}
	if step > reached {
		return refuse("%s %d: feed %s of run %s has only reached step %d", field, step, fact.Entity, fact.Run, reached)
	}
	return nil
}

// reachedStep is the last step of a feed; 0 before the first.
func (s *Service) reachedStep(ctx context.Context, run, feed string) (int64, error) {
	last, err := s.log.LastOfType(ctx, run, events.BatchReadyType, feed)
	if errors.Is(err, eventlog.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ready, err := events.Data[events.BatchReady](last)
	return ready.Step, err
}

// admitTurn refuses remarks on turns that the rollout has not had.
func (s *Service) admitTurn(ctx context.Context, fact events.Event, turn *int) error {
	if turn == nil {
		return nil
	}
	r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuseRollout(fact)
	}
	turns := len(r.Turns)
	if r.Finished != nil {
		turns = max(turns, r.Finished.Turns) // those of an external rollout may be in its trajectory alone
	}
	if err == nil && r.Left(*turn) {
		return refuse("turn %d: rollout %s of run %s has left it behind, when its agent was started anew", *turn,
			fact.Entity, fact.Run)
	}
	if err == nil && (*turn < 0 || *turn >= turns) {
		return refuse("turn %d: rollout %s of run %s has %d turns, counted from 0", *turn, fact.Entity, fact.Run, turns)
	}
	return err
}

func refuseRollout(fact events.Event) error {
	return refuse("run %s has no rollout %q", fact.Run, fact.Entity)
}

// follows says which facts may stand behind a link (nil: begin a chain).
func (s *Service) follows(ctx context.Context, fact events.Event, last *events.Event) error {
	rule := rules[fact.Type]
	begins := fact.Type == events.GroupOpenedType || fact.Type == events.RolloutStartedType
	switch {
	case !begins && last == nil && fact.Type.Kind() == events.RolloutStartedType.Kind():
		return refuseRollout(fact)
	case !begins && last != nil && last.Type == events.RunClosedType:
		return refuse("run %s is closed", fact.Run)
	case rule.follows != nil:
		return rule.follows(s, ctx, fact, last)
	case rule.next != nil:
		r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
		if err != nil {
			return err
		}
		return inOrder(fact, &r)
	}
	return nil
}
