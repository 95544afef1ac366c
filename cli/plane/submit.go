package plane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// AnswerTimeout bounds the wait for the intake: it may just be starting.
const AnswerTimeout = 15 * time.Second

// Submit sends an event to the intake and waits for the answer.
func Submit(ctx context.Context, p *Plane, s eventlog.Submission) (events.IntakeAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	s.Source = "rondo"
	answer, err := p.Log.Submitter.Submit(ctx, s)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: does `rondo up` or `rondo service intake` run?", err)
	}
	return answer, err
}

// ErrAtRest means that the run is closed and nothing of it is in flight.
var ErrAtRest = errors.New("the run is at rest")
