package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
)

// A rollout's trace begins with the event that starts it, and every later event of its chain
// carries the trace's id. The id of the trace's first span follows from the trace's, so each
// process knows the parent of its spans without asking another one.

// Begin is the first span of a trace that begins with an event: the same event and
// moment give the same one.
func Begin(id string, at time.Time) trace.SpanContext {
	digest := sha256.New()
	digest.Write([]byte(id))
	var nanos [8]byte
	binary.BigEndian.PutUint64(nanos[:], uint64(at.UnixNano()))
	digest.Write(nanos[:])
	return root(trace.TraceID(digest.Sum(nil)[:16]))
}

// root is the first span of a trace. It counts as sampled: whether a trace is kept follows from its
// id alone, so that all processes agree.
func root(id trace.TraceID) trace.SpanContext {
	span := trace.SpanID(id[8:])
	if !span.IsValid() {
		span[0] = 1
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span,
		TraceFlags: trace.FlagsSampled, Remote: true})
}

// ids draws the ids of spans, but of a trace's first span, whose ids are given.
type ids struct{}

type givenKey struct{}

// withIDs lets the next span that has no parent have these ids.
func withIDs(ctx context.Context, span trace.SpanContext) context.Context {
	return context.WithValue(ctx, givenKey{}, span)
}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if span, ok := ctx.Value(givenKey{}).(trace.SpanContext); ok {
		return span.TraceID(), span.SpanID()
	}
	span := Random()
	return span.TraceID(), span.SpanID()
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Random begins a trace of no event. Nobody samples it: it ties the events of one
// chain together all the same.
func Random() trace.SpanContext {
	var cfg trace.SpanContextConfig
	binary.NativeEndian.PutUint64(cfg.TraceID[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(cfg.TraceID[8:], rand.Uint64()|1)
	binary.NativeEndian.PutUint64(cfg.SpanID[:], rand.Uint64()|1)
	return trace.NewSpanContext(cfg)
}

var format propagation.TraceContext

// Parent is a context's trace as a header value.
func Parent(ctx context.Context) string {
	var h header
	format.Inject(ctx, &h)
	return string(h)
}

// Header is a span as a header value, for a context that has another one.
func Header(span trace.SpanContext) string {
	return Parent(trace.ContextWithSpanContext(context.Background(), span))
}

// Read is the span that a header value names, an invalid one where it names none.
func Read(value string) trace.SpanContext {
	h := header(value)
	return trace.SpanContextFromContext(format.Extract(context.Background(), &h))
}

// firstSpan is the first span of the trace that an event is in, an invalid one where it is in none.
func firstSpan(e events.Event) trace.SpanContext {
	if span := Read(e.TraceParent); span.IsValid() {
		return root(span.TraceID())
	}
	return trace.SpanContext{}
}

// header is the one header of a trace context.
type header string

// Get gives the header.
func (h *header) Get(key string) string {
	if key == "traceparent" {
		return string(*h)
	}
	return ""
}

// Set takes the header.
func (h *header) Set(key, value string) {
	if key == "traceparent" {
		*h = header(value)
	}
}

// Keys has nothing to list: the propagator asks for what it knows.
func (h *header) Keys() []string { return nil }
