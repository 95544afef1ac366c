// Package tracing makes OpenTelemetry traces of the work of services: one trace for each
// rollout, whichever processes work on it. Spans hold names, numbers and ids; nothing that a
// model, a tool or a user wrote.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// Options say where spans go. The standard variables of OpenTelemetry say the rest:
// OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES.
type Options struct {
	// Endpoint is the base URL of a collector; "" is that of the standard variables, and where
	// these name none there is no tracing.
	Endpoint string
	Log      eventlog.Reader
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // nil: none
	Instance string
	Version  string
}

// Tracing sends spans to a collector. A nil Tracing is off and costs nothing.
type Tracing struct {
	log       eventlog.Reader
	processor sdktrace.SpanProcessor
	sampler   sdktrace.Sampler
	instance  string
	version   string
	lost      prometheus.Counter
	runs      *expirable.LRU[string, *knownRun]
	sets      *tools.Sets

	jobs    chan job
	working sync.WaitGroup

	mu        sync.Mutex
	providers map[string]*sdktrace.TracerProvider
	closed    bool
}

const (
	// waiting bounds the stated events of which no spans were made yet. Beyond it they are left
	// out: tracing holds nobody up.
	waiting = 512
	// workers make spans of stated events, for which they ask the log.
	workers = 4
	// maxLinks lets the span of a batch have a link to each of its rollouts.
	maxLinks = 16384
	// knownFor is how long a run's configuration is kept: a run may be deleted, and another
	// one opened under its name.
	knownFor = time.Minute
	// flushFor is how long a process that ends waits for its collector.
	flushFor = 3 * time.Second
)

// New starts tracing where the options or the environment name a collector; nil where they do not.
func New(ctx context.Context, o Options) (*Tracing, error) {
	if disabled(o.Endpoint) {
		return nil, nil
	}
	spans, err := newCounter(o.Metrics)
	if err != nil {
		return nil, err
	}
	sampler, err := samplerOf(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	c, err := newCollector(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	to, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	e := newExporter(to, o.Logger, spans)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(e.fault))
	t := &Tracing{
		log: o.Log, processor: sdktrace.NewBatchSpanProcessor(e), sampler: sampler,
		instance: o.Instance, version: o.Version,
		lost: spans.WithLabelValues("lost"), runs: expirable.NewLRU[string, *knownRun](256, nil, knownFor),
		sets: tools.NewSets(),
		jobs: make(chan job, waiting), providers: map[string]*sdktrace.TracerProvider{},
	}
	for range workers {
		t.working.Go(t.work)
	}
	return t, nil
}

// disabled reports whether nobody asks for traces.
func disabled(endpoint string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") {
		return true
	}
	return endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" &&
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == ""
}

// samplerOf is the sampler that the environment names. A trace is kept or left by its id alone: the
// process that a rollout began in may trace nothing.
func samplerOf(name, arg string) (sdktrace.Sampler, error) {
	switch strings.TrimPrefix(name, "parentbased_") {
	case "", "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		share, err := strconv.ParseFloat(cmp.Or(arg, "1"), 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: use a share from 0 to 1", arg)
		}
		return sdktrace.TraceIDRatioBased(share), nil
	}
	return nil, fmt.Errorf("OTEL_TRACES_SAMPLER is %q: use always_on, always_off or traceidratio", name)
}

// tracer is that of a service. Each has a resource of its own, as those of one process are
// different services all the same.
func (t *Tracing) tracer(service string) trace.Tracer {
	t.mu.Lock()
	defer t.mu.Unlock()
	provider := t.providers[service]
	if provider == nil {
		limits := sdktrace.NewSpanLimits()
		if os.Getenv("OTEL_SPAN_LINK_COUNT_LIMIT") == "" {
			limits.LinkCountLimit = maxLinks
		}
		provider = sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(t.processor), sdktrace.WithResource(t.resource(service)),
			sdktrace.WithIDGenerator(ids{}),
			sdktrace.WithSampler(t.sampler), sdktrace.WithRawSpanLimits(limits),
		)
		t.providers[service] = provider
	}
	return provider.Tracer("github.com/rondo-rl/rondo")
}

// resource says which process of which service makes a span. The environment's
// own attributes count more.
func (t *Tracing) resource(service string) *resource.Resource {
	ours := resource.NewSchemaless(
		attribute.String("service.namespace", "rondo"), attribute.String("service.name", "rondo-"+service),
		attribute.String("service.instance.id", t.instance), attribute.String("service.version", t.version),
	)
	theirs, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		otel.Handle(err)
	}
	merged, err := resource.Merge(ours, theirs)
	if err != nil {
		otel.Handle(err)
		return ours
	}
	return merged
}

// Close makes the spans that are left and sends them, for a short time.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed {
		return
	}
	close(t.jobs)
	ctx, cancel := context.WithTimeout(context.Background(), flushFor)
	defer cancel()
	made := make(chan struct{})
	go func() { t.working.Wait(); close(made) }()
	select {
	case <-made:
	case <-ctx.Done():
	}
	_ = t.processor.Shutdown(ctx) // what a collector that is away does not take is lost
}
