package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// ErrOvertaken means that the log holds something else than what was to be published, and what
// depends on it must be worked out anew.
var ErrOvertaken = errors.New("overtaken by other events")

// ErrCallAgain asks for another call of the handler when the events beside it are on the log: what
// is left to do must come after them.
var ErrCallAgain = errors.New("the rest is for the next call")

// Publish appends events in their order, and gives them as they are on the log. The first event of
// a chain carries Prev as its author saw it, later ones of the chain are linked here. adopted is
// set when the last event is one that somebody else appended.
//
// It stops with ErrOvertaken when another event holds the position of one of them, and also
// when one that is not the last was appended by somebody else: the log's content counts, and
// the rest was derived from ours.
func (env Env) Publish(ctx context.Context, facts []events.Event) (stored []events.Event, adopted bool, err error) {
	return publish(ctx, env.Log.Appender, facts)
}

func publish(ctx context.Context, log eventlog.Appender,
	facts []events.Event) (stored []events.Event, adopted bool, err error) {
	tails := map[string]uint64{}
	for i, e := range facts {
		chain := e.Chain()
		if tail, ok := tails[chain]; ok {
			e.Prev = tail
		}
		if e, adopted, err = log.Append(ctx, e); err != nil {
			var conflict *eventlog.Conflict
			if errors.As(err, &conflict) {
				err = fmt.Errorf("%w: %w", ErrOvertaken, err)
			}
			return stored, false, err
		}
		if adopted && i < len(facts)-1 {
			return stored, false, fmt.Errorf("%w: %s was adopted", ErrOvertaken, e.ID)
		}
		tails[chain] = e.Seq
		stored = append(stored, e)
	}
	return stored, adopted, nil
}
