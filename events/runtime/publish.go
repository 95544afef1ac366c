package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime/jetpubsub"
)

// races bounds how often a handler is called again at once because somebody else was faster.
const races = 5

// publishAll calls the handler and publishes what it states, until nothing of it was overtaken.
func (h *inputs) publishAll(ctx context.Context, in Message) error {
	var err error
	for range races {
		outputs, handlerErr := h.effect.Handle(ctx, in)
		if len(outputs) == 0 {
			return handlerErr
		}
		began := time.Now()
		err = h.publisher.Publish("", h.messages(ctx, outputs)...)
		h.meter.published(time.Since(began), len(outputs))
		switch {
		case err == nil:
			return handlerErr
		case !errors.Is(err, jetpubsub.ErrOvertaken):
			return err // and not the handler's wish: a Permanent input would go with its events unstated
		}
	}
	return err
}

// messages says who states the events and in which trace.
func (h *inputs) messages(ctx context.Context, outputs []events.Event) []*message.Message {
	trace := traceParent(ctx)
	messages := make([]*message.Message, len(outputs))
	for i, e := range outputs {
		if e.Source == "" {
			e.Source = h.effect.Name
		}
		e.TraceParent = trace
		messages[i] = jetpubsub.MessageOf(ctx, e)
	}
	return messages
}
