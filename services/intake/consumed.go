package intake

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// admitConsumed checks the step, and what the trainer says of its log-probabilities and of stale
// rollouts against the batch of that step.
func (s *Service) admitConsumed(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.BatchConsumed) error {
	if err := s.admitStep(ctx, cfg, fact, "step", p.Step); err != nil || p.LogprobGap == nil && p.Stale == nil {
		return err
	}
	last, err := s.log.Last(ctx, fact.Run, fact.Type.Kind(), fact.Entity)
	if err != nil {
		return err
	}
	stored, found, err := s.known.find(ctx, last, events.ID(fact.Run, events.BatchReadyType, fact.Entity,
		events.Ordinal(p.Step)))
	if err != nil {
		return err
	}
	if !found {
		return refuse("step %d: feed %s of run %s has no such batch", p.Step, fact.Entity, fact.Run)
	}
	ready, err := events.Data[events.BatchReady](stored)
	if err != nil {
		return err
	}
	if p.LogprobGap != nil {
		if err := p.LogprobGap.Check(ready.Sampled); err != nil {
			return refuse("step %d: %v", p.Step, err)
		}
	}
	members := map[string]bool{}
	for _, id := range ready.Rollouts {
		members[id] = true
	}
	for _, id := range p.Stale {
		if !members[id] {
			return refuse("step %d: stale names %.100q, which is no rollout of the batch or is named twice", p.Step, id)
		}
		delete(members, id)
	}
	return nil
}
