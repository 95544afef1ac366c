package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporter hands spans to a collector, and says once when that is away and once when it is back.
type exporter struct {
	sdktrace.SpanExporter
	logger         *slog.Logger
	exported, lost prometheus.Counter

	mu     sync.Mutex
	away   bool
	missed int
	faults bool
}

// newCounter is the count of spans.
func newCounter(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_trace_spans_total",
		Help: "Spans by what became of them: exported, lost."}, []string{"outcome"})
	if r == nil {
		return spans, nil
	}
	err := r.Register(spans)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		return already.ExistingCollector.(*prometheus.CounterVec), nil
	}
	return spans, err
}

func newExporter(to sdktrace.SpanExporter, l *slog.Logger, spans *prometheus.CounterVec) *exporter {
	return &exporter{SpanExporter: to, logger: l, exported: spans.WithLabelValues("exported"),
		lost: spans.WithLabelValues("lost")}
}

// ExportSpans implements sdktrace.SpanExporter. A failure is no error: the SDK would log each.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.lost.Add(float64(len(spans)))
		e.missed += len(spans)
		if !e.away {
			e.logger.Warn("trace collector unavailable", "error", plain(err))
		}
		e.away = true
		return nil
	}
	e.exported.Add(float64(len(spans)))
	if e.away {
		e.logger.Warn("trace collector recovered", "lost_spans", e.missed)
	}
	e.away, e.missed = false, 0
	return nil
}

// fault takes what else the SDK complains of, of which the first is logged.
func (e *exporter) fault(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.faults {
		e.logger.Warn("tracing impaired", "error", plain(err))
	}
	e.faults = true
}

// plain is an error without its URL, which may hold a password.
func plain(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
