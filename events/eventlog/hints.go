package eventlog

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
)

// Hints finds what a hinter has stated of a scored rollout; false where that is nothing yet.
func (l *Log) Hints(ctx context.Context, run, rollout, hinter string) (said events.RolloutHinted, there bool, err error) {
	id := events.ID(run, events.RolloutHintedType, rollout, hinter)
	link, err := l.Last(ctx, run, events.RolloutHintedType.Kind(), rollout)
	for err == nil && link.ID != id {
		if link.Type == events.RolloutScoredType || link.Prev == 0 {
			return said, false, nil // it stands behind the reward
		}
		link, err = l.Event(ctx, run, link.Prev)
	}
	if errors.Is(err, ErrNotFound) {
		return said, false, nil
	}
	if err != nil {
		return said, false, err
	}
	said, err = events.Data[events.RolloutHinted](link)
	return said, err == nil, err
}
