package intake

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// admitHinted checks what somebody outside says of a scored rollout: by a name that the run knows, and of sampled tokens that there are.
func (s *Service) admitHinted(ctx context.Context, cfg runfile.RunConfig, fact events.Event, p *events.RolloutHinted) error {
	if !cfg.Hinter(p.By) {
		return refuse("by %.80q: no feed and no teacher of run %s takes hints of that name", p.By, fact.Run)
	}
	r, err := s.scoredRollout(ctx, fact, p.Trajectory)
	if err != nil || len(p.Hints) == 0 {
		return err
	}
	s.decoders <- struct{}{}
	defer func() { <-s.decoders }()
	samples, err := s.samplesOf(ctx, fact, r.Scored.Trajectory)
	if err != nil {
		return err
	}
	if _, err := p.Rows(samples); err != nil {
		return refuse("%v", err)
	}
	return nil
}
