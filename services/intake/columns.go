package intake

import (
	"context"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/storage"
)

// maxColumn bounds the object of a turn's token column, in bytes: the longest that an
// inference server may answer.
const maxColumn = 64 << 20

// admitColumns checks the token columns of a turn that was sampled elsewhere: that the run asks for
// them, and that their objects have the rows that the turn names.
func (s *Service) admitColumns(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout,
	p *events.TurnSampled) error {
	if len(p.Columns) == 0 {
		return nil
	}
	if p.TextOnly {
		return refuse("columns: the turn has no tokens")
	}
	if err := storage.CheckTokenColumns(p.Columns, p.PromptTokens+len(p.TokenIDs)); err != nil {
		return refuse("columns: %v", err)
	}
	var columns []inference.Column
	var objects []storage.Ref
	for _, c := range p.Columns {
		at := slices.IndexFunc(columns, func(known inference.Column) bool { return known.Name == c.Name })
		if at < 0 {
			at = len(columns)
			columns, objects = append(columns, inference.Column{Name: c.Name}), append(objects, c.Object)
		}
		if objects[at] != c.Object {
			return refuse("columns: a turn has one object for all of its %s", c.Name)
		}
		columns[at].Spans = append(columns[at].Spans, inference.ColumnSpan{Start: int(c.Start),
			Length: int(c.Length), Row: int(c.Row)})
	}
	for i, c := range columns {
		if err := s.admitColumn(ctx, cfg, r, p, c, objects[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) admitColumn(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout, p *events.TurnSampled,
	c inference.Column, ref storage.Ref) (err error) {
	s.decoders <- struct{}{}
	defer func() { <-s.decoders }()
	if c.File, err = s.object(ctx, harness(r.Run), "columns", ref, maxColumn); err != nil {
		return err
	}
	if err := inference.CheckColumn(cfg.TokenColumns, c, p.PromptTokens, p.TokenIDs); err != nil {
		s.logger.Warn("token columns refused", "run", r.Run, "rollout", r.ID, "turn", p.Turn, "column", c.Name,
			"key", ref.Key, "error", err)
		return refuse("columns: the object %.200q does not hold %s that fit the turn's tokens and the run's token_columns; the operator finds what is wrong in the intake's log", ref.Key, c.Name)
	}
	return nil
}

// sameColumns refuses a trajectory whose messages name other token columns than the rollout's
// turns, since no event would name their objects, or do not say that a turn was constrained.
func sameColumns(t *storage.Trajectory, r *events.Rollout) error {
	for i, m := range t.Messages {
		turn := int(m.Turn)
		free := m.Role == "assistant" && !m.Constrained && turn >= 0 && turn < len(r.Turns)
		if free && slices.Contains(m.LossMask, true) && len(r.Turns[turn].Constrained) > 0 {
			return refuse("trajectory: message %d does not say that turn %d was constrained", i, turn)
		}
		if len(m.Columns) == 0 {
			continue
		}
		if m.Role != "assistant" || turn < 0 || turn >= len(r.Turns) ||
			!slices.Equal(m.Columns, r.Turns[turn].Columns) {
			return refuse("trajectory: message %d has other token columns than the rollout's turns", i)
		}
	}
	return nil
}
