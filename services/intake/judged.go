package intake

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// admitJudged refuses judgements on versions that were never published, and of a canary that
// no promotion gave a share.
func (s *Service) admitJudged(ctx context.Context, fact events.Event, p *events.WeightsJudged) error {
	switch {
	case p.Version == p.Against:
		return refuse("version %d cannot be judged against itself", p.Version)
	case (p.Stage == events.JudgedCanary) != (p.Promotion > 0):
		return refuse("promotion %d: the sequence of a canary's %s, and of no other stage's", p.Promotion,
			events.WeightsPromotedType)
	case p.Verdict != events.JudgedPassed && len(p.Reasons) == 0:
		return refuse("verdict %s: give the reasons", p.Verdict)
	}
	for _, version := range []int64{p.Version, p.Against} {
		if err := s.admitPublished(ctx, fact, version); err != nil {
			return err
		}
	}
	if p.Promotion == 0 {
		return nil
	}
	e, err := s.log.Event(ctx, fact.Run, p.Promotion)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	if err == nil && e.Type == events.WeightsPromotedType && e.Entity == fact.Entity {
		promoted, err := events.Data[events.WeightsPromoted](e)
		if err != nil {
			return err
		}
		if promoted.Share > 0 && promoted.Version == p.Version && promoted.Before == p.Against {
			return nil
		}
	}
	return refuse("sequence %d is no %s that gives version %d of policy %s a share beside version %d", p.Promotion,
		events.WeightsPromotedType, p.Version, fact.Entity, p.Against)
}

// followsJudgement refuses a promotion by a judgement that says something else, or after which
// something was promoted: a person's choice stays. It looks when the promotion is linked, so
// nothing comes in between.
func (s *Service) followsJudgement(ctx context.Context, fact events.Event, last *events.Event) error {
	if last == nil {
		return nil
	}
	promoted, err := events.Data[events.WeightsPromoted](fact)
	if err != nil || promoted.Judgement == "" {
		return err
	}
	e, found, err := s.known.find(ctx, *last, promoted.Judgement)
	if err != nil {
		return err
	}
	if !found || e.Type != events.WeightsJudgedType {
		return refuse("judgement %.100q: there is no such %s of policy %s", promoted.Judgement,
			events.WeightsJudgedType, fact.Entity)
	}
	judged, err := events.Data[events.WeightsJudged](e)
	if err != nil {
		return err
	}
	if !promoted.FollowsFrom(judged) {
		return refuse("version %d does not follow from the judgement %s, whose verdict on version %d is %s",
			promoted.Version, promoted.Judgement, judged.Version, judged.Verdict)
	}
	before, err := s.log.LastOfType(ctx, fact.Run, events.WeightsPromotedType, fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	if err == nil && before.Seq > e.Seq {
		return refuse("something else was promoted since the judgement %s, at sequence %d", promoted.Judgement,
			before.Seq)
	}
	return err
}
