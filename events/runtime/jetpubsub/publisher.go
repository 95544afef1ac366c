package jetpubsub

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// ErrOvertaken: the log holds something else than what was to be published, and what depends on it must be
// worked out anew.
var ErrOvertaken = errors.New("overtaken by other events")

// Publisher appends events to the log.
type Publisher struct{ Log *eventlog.Log }

var _ message.Publisher = Publisher{}

type eventKey struct{}

// MessageOf makes the message that stands for an event.
func MessageOf(ctx context.Context, e events.Event) *message.Message {
	m := &message.Message{UUID: e.ID, Payload: []byte(e.Data)} // nobody waits for it to be acknowledged
	m.SetContext(context.WithValue(ctx, eventKey{}, e))
	return m
}

// Publish appends the events that the messages stand for, in their order; the topic is the events' own. The
// first event of a chain carries Prev as its author saw it, later ones of the chain are linked here.
//
// It stops with ErrOvertaken when another event stands in the place of one of them, and also when one that is
// not the last was appended by somebody else: the log's content counts, and the rest was derived from ours.
func (p Publisher) Publish(_ string, messages ...*message.Message) error {
	tails := map[string]uint64{}
	for i, m := range messages {
		e, ok := m.Context().Value(eventKey{}).(events.Event)
		if !ok {
			return fmt.Errorf("publish message %s: it stands for no event", m.UUID)
		}
		chain := e.Chain()
		if tail, ok := tails[chain]; ok {
			e.Prev = tail
		}
		stored, adopted, err := p.Log.Append(m.Context(), e)
		var conflict *eventlog.Conflict
		switch {
		case errors.As(err, &conflict):
			return fmt.Errorf("%w: %w", ErrOvertaken, err)
		case err != nil:
			return err
		case adopted && i < len(messages)-1:
			return fmt.Errorf("%w: %s was adopted", ErrOvertaken, e.ID)
		}
		tails[chain] = stored.Seq
	}
	return nil
}

// Close has nothing to close: the log belongs to the caller.
func (Publisher) Close() error { return nil }
