package intake

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// admitActivated refuses versions that were never published for the policy. Every policy begins with version 0, which nobody publishes.
func (s *Service) admitActivated(ctx context.Context, fact events.Event, p *events.WeightsActivated) error {
	if p.Version == 0 {
		return nil
	}
	last, err := s.log.Last(ctx, fact.Run, fact.Type.Kind(), fact.Entity)
	found := false
	if err == nil {
		_, found, err = s.known.find(ctx, last, events.ID(fact.Run, events.WeightsPublishedType, fact.Entity, events.Ordinal(p.Version)))
	}
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	if !found {
		return refuse("version %d of policy %s was never published: publish the weights first, or name a version of a %s", p.Version, fact.Entity, events.WeightsPublishedType)
	}
	return nil
}
