package intake

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// admitHinted checks what somebody outside says of a scored rollout: by a name that the run knows,
// and of sampled tokens that there are.
func (s *Service) admitHinted(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.RolloutHinted) error {
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

// hints finds what a hinter has stated of a scored rollout; false where that is nothing yet.
func (s *Service) hints(ctx context.Context, run, rollout,
	hinter string) (said events.RolloutHinted, there bool, err error) {
	id := events.ID(run, events.RolloutHintedType, rollout, hinter)
	link, err := s.log.Last(ctx, run, events.RolloutHintedType.Kind(), rollout)
	for err == nil && link.ID != id {
		if link.Type == events.RolloutScoredType || link.Prev == 0 {
			return said, false, nil // it stands behind the reward
		}
		link, err = s.log.Event(ctx, run, link.Prev)
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		return said, false, nil
	}
	if err != nil {
		return said, false, err
	}
	said, err = events.Data[events.RolloutHinted](link)
	return said, err == nil, err
}
