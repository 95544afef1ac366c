package tracing

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
)

// Subject is what a piece of work is about.
type Subject struct {
	Run, Rollout string
	Type         string // of the input
	// submitted: it is not on the log yet, so it is in the trace of who submits it.
	submitted bool
}

type subjectKey struct{}

// WithSubject lets log lines of a context name what they are about.
func WithSubject(ctx context.Context, s Subject) context.Context {
	return context.WithValue(ctx, subjectKey{}, s)
}

// SubjectOf reads the subject of a message. Of one that is no event's, it knows the run at most.
func SubjectOf(subject string) (s Subject) {
	if rest, ok := strings.CutPrefix(subject, events.SubjectPrefix); ok {
		tokens := strings.Split(rest, ".")
		if len(tokens) < 4 {
			return s
		}
		s.Run, s.Type = tokens[0], tokens[1]+"."+tokens[3]
		if tokens[1] == events.RolloutStartedType.Kind() {
			s.Rollout = tokens[2]
		}
	}
	if run, t, entity, err := events.ParseIntakeSubject(subject); err == nil {
		s.Run, s.Type, s.submitted = run, string(t), true
		if t.Kind() == events.RolloutStartedType.Kind() {
			s.Rollout = entity
		}
	}
	return s
}

func (s Subject) attributes() (list []attribute.KeyValue) {
	if s.Run != "" && s.Run != events.Catalogue {
		list = append(list, attribute.String("rondo.run", s.Run))
	}
	if s.Rollout != "" {
		list = append(list, attribute.String("rondo.rollout", s.Rollout),
			attribute.String("gen_ai.conversation.id", s.Rollout))
	}
	return list
}

// LogHandler adds run, rollout and trace to the lines that are logged with a context that has them.
func LogHandler(h slog.Handler) slog.Handler { return logHandler{Handler: h} }

type logHandler struct {
	slog.Handler
	has map[string]bool // keys that With has given
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if ctx == nil {
		return h.Handler.Handle(context.Background(), r)
	}
	about, _ := ctx.Value(subjectKey{}).(Subject)
	span := trace.SpanContextFromContext(ctx)
	if about.Run == "" && !span.IsValid() {
		return h.Handler.Handle(ctx, r)
	}
	stated := map[string]bool{}
	r.Attrs(func(a slog.Attr) bool { stated[a.Key] = true; return true })
	add := func(key, value string) {
		if value != "" && !stated[key] && !h.has[key] {
			r.AddAttrs(slog.String(key, value))
		}
	}
	r = r.Clone()
	add("run", about.Run)
	add("rollout", about.Rollout)
	if span.IsValid() {
		add("trace_id", span.TraceID().String())
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(list []slog.Attr) slog.Handler {
	has := map[string]bool{}
	for key := range h.has {
		has[key] = true
	}
	for _, a := range list {
		has[a.Key] = true
	}
	return logHandler{h.Handler.WithAttrs(list), has}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name), h.has}
}
