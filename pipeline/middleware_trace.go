package pipeline

import (
	"context"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
)

var traceContext propagation.TraceContext

// headerCarrier reads the trace context of a NATS message, whose header names keep their case.
type headerCarrier nats.Header

func (c headerCarrier) Get(key string) string {
	if v := c[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}
func (c headerCarrier) Set(key, value string) { c[key] = []string{value} }
func (c headerCarrier) Keys() []string        { return nil }

// traced is the middleware that carries the W3C trace context of the input on. Where the process has a tracer,
// the handler's work is a span; without one the context passes through, and an input without one begins a trace.
func traced(service string, input events.Type) message.HandlerMiddleware {
	tracer := otel.Tracer("github.com/rondo-rl/rondo/pipeline")
	name := service + " " + string(input)
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx := m.Context()
			if d := jetpubsub.DeliveryOf(m); d != nil {
				ctx = traceContext.Extract(ctx, headerCarrier(d.Msg.Headers()))
			}
			ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer))
			defer span.End()
			if !span.SpanContext().IsValid() {
				ctx = trace.ContextWithSpanContext(ctx, newTrace())
			}
			m.SetContext(ctx)
			out, err := next(m)
			if err != nil {
				span.RecordError(err)
			}
			return out, err
		}
	}
}

// newTrace begins a trace that nobody samples: it ties the events of one chain together all the same.
func newTrace() trace.SpanContext {
	var cfg trace.SpanContextConfig
	for i := range cfg.TraceID {
		cfg.TraceID[i] = byte(rand.Uint32())
	}
	for i := range cfg.SpanID {
		cfg.SpanID[i] = byte(rand.Uint32())
	}
	return trace.NewSpanContext(cfg)
}

// traceParent is the context's trace as a header value.
func traceParent(ctx context.Context) string {
	var carrier singleValue
	traceContext.Inject(ctx, &carrier)
	return carrier.traceParent
}

// singleValue takes the one header out of a propagator.
type singleValue struct{ traceParent string }

func (c *singleValue) Get(string) string { return c.traceParent }
func (c *singleValue) Set(key, value string) {
	if key == "traceparent" {
		c.traceParent = value
	}
}
func (c *singleValue) Keys() []string { return nil }
