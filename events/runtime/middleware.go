package runtime

import (
	"context"
	"crypto/rand"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events/runtime/jetsub"
)

// settle turns a handler's error into what JetStream is told, and logs what is given up.
func (s *effectService) settle(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		out, err := next(m)
		d := jetsub.DeliveryOf(m)
		if err == nil || d == nil {
			return out, err
		}
		w, ok := wishOf(err)
		switch {
		case ok && w.permanent:
			s.env.Logger.Error("an input is given up", "service", s.effect.Name, "subject", d.Msg.Subject(), "sequence", d.Meta.Sequence.Stream, "error", err)
			d.Nacked(jetsub.Verdict{Terminate: true, Reason: clip(err.Error())})
		case ok:
			d.Nacked(jetsub.Verdict{After: w.after})
		case d.Meta.NumDelivered&(d.Meta.NumDelivered-1) == 0: // the 1st, 2nd, 4th, 8th … time
			s.env.Logger.Warn("an input failed and will come again", "service", s.effect.Name, "subject", d.Msg.Subject(), "delivery", d.Meta.NumDelivered, "error", err)
		}
		return out, err
	}
}

// clip keeps a reason within what an advisory may carry.
func clip(reason string) string {
	const most = 1000
	if len(reason) > most {
		return reason[:most] + "…"
	}
	return reason
}

var traceContext propagation.TraceContext

// traced carries the W3C trace context of the input on, with a span of this step's own; an input without one
// begins a trace.
func traced(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		ctx := traceContext.Extract(m.Context(), propagation.MapCarrier(m.Metadata))
		cfg := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
		if parent := trace.SpanContextFromContext(ctx); parent.IsValid() {
			cfg.TraceID, cfg.TraceFlags, cfg.TraceState = parent.TraceID(), parent.TraceFlags(), parent.TraceState()
		} else {
			rand.Read(cfg.TraceID[:])
		}
		rand.Read(cfg.SpanID[:])
		m.SetContext(trace.ContextWithSpanContext(ctx, trace.NewSpanContext(cfg)))
		return next(m)
	}
}

// traceParent is the context's trace as a header value.
func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return carrier["traceparent"]
}
