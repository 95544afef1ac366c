package pipeline

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/pipeline/tracing"
)

// The headers of a message that tracing reads; their names keep their case.
const (
	traceHeader = "traceparent"
	idHeader    = "ce-id"
)

// traced is the middleware that carries the W3C trace context of the input on. Where the process
// traces, the handler's work is a span; without that the context passes through, and an input
// without one begins a trace.
func (s *effectService) traced(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		in := tracing.Input{Service: s.effect.Name}
		if d := jetpubsub.DeliveryOf(m); d != nil {
			header := d.Msg.Headers()
			in.Subject, in.Time, in.Delivered = d.Msg.Subject(), d.Timestamp, d.NumDelivered
			if v := header[traceHeader]; len(v) == 1 {
				in.Parent = tracing.Read(v[0])
			}
			if v := header[idHeader]; len(v) == 1 {
				in.ID = v[0]
			}
		}
		ctx, work := s.env.Tracing.Start(m.Context(), in)
		m.SetContext(ctx)
		failure := "panic"
		defer func() { work.End(failure) }()
		out, err := next(m)
		failure = failureOf(err)
		return out, err
	}
}

// failureOf is the kind of an error that a handler ended with.
func failureOf(err error) string {
	w, wished := wishOf(err)
	switch {
	case err == nil:
		return ""
	case wished && w.permanent:
		return "rejected"
	case wished:
		return "retried"
	}
	return "failed"
}
