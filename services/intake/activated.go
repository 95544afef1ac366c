package intake

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// admitPromoted refuses versions that were never published, and shares without
// a version for the others.
func (s *Service) admitPromoted(ctx context.Context, fact events.Event, p *events.WeightsPromoted) error {
	switch {
	case p.Version == 0 && (p.Share != 0 || p.Before != 0):
		return refuse("version 0 stands for the newest one: leave out share and before")
	case p.Share != 0 && (p.Before == 0 || p.Share == 1):
		return refuse("share %v: below 1, and with the version that the other rollouts get in before", p.Share)
	case p.Version != 0 && p.Before == p.Version:
		return refuse("version %d cannot be the one before itself", p.Version)
	}
	for _, version := range []int64{p.Version, p.Before} {
		if err := s.admitPublished(ctx, fact, version); err != nil {
			return err
		}
	}
	return nil
}

// admitPublished refuses versions that were never published for the policy. Every policy begins
// with version 0, which nobody publishes.
func (s *Service) admitPublished(ctx context.Context, fact events.Event, version int64) error {
	if version == 0 {
		return nil
	}
	last, err := s.log.Last(ctx, fact.Run, fact.Type.Kind(), fact.Entity)
	found := false
	if err == nil {
		_, found, err = s.known.find(ctx, last, events.ID(fact.Run, events.WeightsPublishedType, fact.Entity,
			events.Ordinal(version)))
	}
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	if !found {
		return refuse("version %d of policy %s was never published: publish the weights first, or name a version of a %s",
			version, fact.Entity, events.WeightsPublishedType)
	}
	return nil
}

// admitSubmitted refuses weights of a run that nobody opened, and of steps that no feed of the run
// has reached. Of a run whose stream is deleted nobody knows the steps any more.
func (s *Service) admitSubmitted(ctx context.Context, p *events.WeightsSubmitted) error {
	_, err := s.log.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(), p.Run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuse("run: there is no run %q: name the run whose batches the weights were trained on", p.Run)
	}
	if err != nil {
		return err
	}
	cfg, err := s.log.Config(ctx, p.Run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	reached := int64(0)
	for _, feed := range cfg.Feeds {
		step, err := s.reachedStep(ctx, p.Run, feed.Name)
		if err != nil {
			return err
		}
		reached = max(reached, step)
	}
	if p.ThroughStep > reached {
		return refuse("through_step %d: the feeds of run %s have only reached step %d", p.ThroughStep, p.Run, reached)
	}
	return nil
}
