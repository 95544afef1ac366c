package intake

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/redact"
)

// searchTime bounds the search for secrets in a comment.
const searchTime = 5 * time.Second

// admitMark checks what a person says of a rollout, which may be over and in the run's archive but
// for its outcome. A comment with a secret is refused: the log forgets nothing.
func (s *Service) admitMark(ctx context.Context, _ runfile.RunConfig, fact events.Event, p *events.MarkRecorded) error {
	_, err := s.log.Last(ctx, fact.Run, events.RolloutStartedType.Kind(), fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuseRollout(fact)
	}
	if err != nil || p.Text == "" {
		return err
	}
	searching, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found, err := redact.Find(searching, p.Text)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return refuse("text: it cannot be searched for secrets: %v", err)
	case len(found) > 0:
		return refuse("text: it has a secret (%s), and a log forgets nothing: leave it out", found[0].Rule)
	}
	return nil
}
