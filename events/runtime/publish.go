package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// races bounds how often a handler is called again at once because somebody else was faster.
const races = 5

// errOvertaken: the log went on while the handler worked.
var errOvertaken = errors.New("overtaken by other events")

// publishAll calls a handler and appends what it states, until nothing it stated was overtaken.
func publishAll(ctx context.Context, log *eventlog.Log, service string, in Message, handle Handler) error {
	var err error
	for range races {
		var outputs []events.Event
		var handlerErr error
		if outputs, handlerErr = handle(ctx, in); len(outputs) == 0 {
			return handlerErr
		}
		err = appendAll(ctx, log, service, outputs)
		if !errors.Is(err, errOvertaken) {
			return errors.Join(err, handlerErr)
		}
	}
	return err
}

// appendAll appends a handler's events, and links those of one chain.
func appendAll(ctx context.Context, log *eventlog.Log, service string, outputs []events.Event) error {
	tails := map[string]uint64{}
	for i, e := range outputs {
		if tail, ok := tails[e.Chain()]; ok {
			e.Prev = tail
		}
		if e.Source == "" {
			e.Source = service
		}
		e.TraceParent = traceParent(ctx)
		stored, adopted, err := log.Append(ctx, e)
		var conflict *eventlog.Conflict
		switch {
		case errors.As(err, &conflict):
			return fmt.Errorf("%w: %w", errOvertaken, err)
		case err != nil:
			return err
		case adopted && i < len(outputs)-1:
			// The winner's content counts, and what was to follow was derived from ours.
			return fmt.Errorf("%w: %s was adopted", errOvertaken, e.ID)
		}
		tails[e.Chain()] = stored.Seq
	}
	return nil
}
