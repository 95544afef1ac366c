package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Input is a message that a service works on.
type Input struct {
	Service string
	// Subject is that of the message, and Parent the trace context in it.
	Subject string
	Parent  trace.SpanContext
	// ID and Time tell an input from others that came without a trace context.
	ID        string
	Time      time.Time
	Delivered uint64
}

// Work is the span of one delivery. A nil Work is of a process that traces nothing.
type Work struct {
	tracing *Tracing
	service string
	span    trace.Span
}

type workKey struct{}

// Start begins the span of an input. With a nil Tracing the context only carries the trace on, and
// an input without one begins a trace.
func (t *Tracing) Start(ctx context.Context, in Input) (context.Context, *Work) {
	about := SubjectOf(in.Subject)
	ctx = WithSubject(ctx, about)
	if t == nil {
		if !in.Parent.IsValid() {
			in.Parent = Random()
		}
		return trace.ContextWithSpanContext(ctx, in.Parent), nil
	}
	cause := in.Parent
	if !in.Parent.IsValid() {
		in.Parent = Begin(in.ID, in.Time)
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(about.attributes()...)}
	if about.Rollout != "" && !about.submitted {
		in.Parent = root(in.Parent.TraceID())
		if cause.IsValid() && cause.SpanID() != in.Parent.SpanID() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: cause}))
		}
	}
	if in.Delivered > 1 {
		options = append(options, trace.WithAttributes(attribute.Int64("rondo.delivery", int64(in.Delivered))))
	}
	name := in.Service
	if about.Type != "" {
		name += " " + about.Type
	}
	ctx, span := t.tracer(in.Service).Start(trace.ContextWithRemoteSpanContext(ctx, in.Parent), name, options...)
	w := &Work{tracing: t, service: in.Service, span: span}
	return context.WithValue(ctx, workKey{}, w), w
}

// End ends the span; failure is the kind of error that the work ended with, "" for none. Texts of
// errors may quote what models wrote, so they are left out.
func (w *Work) End(failure string) {
	if w == nil {
		return
	}
	if failure != "" {
		w.span.SetAttributes(attribute.String("error.type", failure))
		w.span.SetStatus(codes.Error, "")
	}
	w.span.End()
}

// Stamp gives events that are about to be stated their trace context: that of the work, or of the
// rollout that they are of.
func Stamp(ctx context.Context, log eventlog.Reader, facts []events.Event) {
	parent := Parent(ctx)
	w, _ := ctx.Value(workKey{}).(*Work)
	chains := map[string]string{}
	for i := range facts {
		facts[i].TraceParent = parent
		if w == nil || !ofRollout(facts[i]) {
			continue
		}
		chain := facts[i].Chain()
		if _, known := chains[chain]; !known {
			chains[chain] = w.traceContext(ctx, log, facts[i], parent)
		}
		facts[i].TraceParent = chains[chain]
	}
}

// traceContext is the trace context of a rollout's event: the work's own where that is in the
// rollout's trace, as it mostly is.
func (w *Work) traceContext(ctx context.Context, log eventlog.Reader, fact events.Event, parent string) string {
	if about, _ := ctx.Value(subjectKey{}).(Subject); !about.submitted && about.Run == fact.Run &&
		about.Rollout == fact.Entity {
		return parent
	}
	if fact.Prev == 0 {
		return Header(Begin(fact.ID, time.Now()))
	}
	before, err := log.Event(ctx, fact.Run, fact.Prev)
	if err != nil {
		return parent // the append will meet the same error
	}
	if span := firstSpan(before); span.IsValid() {
		return Header(span)
	}
	return parent
}

// Stated tells of events that this process has put on the log, for spans of what they say.
func Stated(ctx context.Context, facts []events.Event) {
	if w, ok := ctx.Value(workKey{}).(*Work); ok {
		w.tracing.enqueue(w.service, w.span.SpanContext(), facts...)
	}
}

// StampDecision gives a decided event its trace context: the start of a rollout, and what is of
// no rollout, begin a trace.
func (t *Tracing) StampDecision(ctx context.Context, log eventlog.Reader, fact *events.Event) {
	begun := Begin(fact.ID, fact.DecidedAt)
	if ofRollout(*fact) && fact.Prev > 0 {
		if t == nil {
			return
		}
		before, err := log.Event(ctx, fact.Run, fact.Prev)
		if err != nil || !firstSpan(before).IsValid() {
			return
		}
		begun = firstSpan(before)
	}
	fact.TraceParent = Header(begun)
}

// Decided tells of a decided event that this process has put on the log.
func (t *Tracing) Decided(service string, fact events.Event) {
	if t != nil {
		t.enqueue(service, trace.SpanContext{}, fact)
	}
}

func ofRollout(e events.Event) bool { return e.Type.Kind() == events.RolloutStartedType.Kind() }

// job is a stated event of which spans are to be made.
type job struct {
	service string
	work    trace.SpanContext // of the handler, invalid for decisions
	fact    events.Event
	at      time.Time
}

// enqueue leaves the spans of events to the workers, unless these are too far behind.
func (t *Tracing) enqueue(service string, work trace.SpanContext, facts ...events.Event) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fact := range facts {
		if tellers[fact.Type] == nil || t.closed {
			continue
		}
		select {
		case t.jobs <- job{service, work, fact, now}:
		default:
			t.lost.Inc()
		}
	}
}

func (t *Tracing) work() {
	for j := range t.jobs {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		tellers[j.fact.Type](t, ctx, j)
		cancel()
	}
}
