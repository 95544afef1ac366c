package tracing

import (
	"context"
	"regexp"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// tellers make the spans of an event, by its type. What cannot be read gives none.
var tellers = map[events.Type]func(*Tracing, context.Context, job){
	events.TurnSampledType:       teller((*Tracing).sampled),
	events.ToolsCompletedType:    teller((*Tracing).tools),
	events.WorkspaceAnsweredType: teller((*Tracing).answered),
	events.StepScoredType:        teller((*Tracing).stepScored),
	events.RolloutScoredType:     teller((*Tracing).scored),
	events.RolloutRetriedType:    teller((*Tracing).retried),
	events.RolloutFailedType:     teller((*Tracing).failed),
	events.GroupCompletedType:    teller((*Tracing).completed),
	events.GroupDroppedType:      teller((*Tracing).dropped),
	events.BatchReadyType:        teller((*Tracing).batched),
}

func teller[T any](tell func(*Tracing, context.Context, job, T)) func(*Tracing, context.Context, job) {
	return func(t *Tracing, ctx context.Context, j job) {
		if data, err := events.Data[T](j.fact); err == nil {
			tell(t, ctx, j, data)
		}
	}
}

// span is one that is over.
type span struct {
	name       string
	kind       trace.SpanKind
	from, to   time.Time
	attributes []attribute.KeyValue
	links      []trace.Link
	failure    string // kind of error, "" for none
	events     func(trace.Span)
}

// make makes a span below another one, of the service that a job is of.
func (t *Tracing) make(ctx context.Context, j job, parent trace.SpanContext, s span) {
	t.finish(trace.ContextWithRemoteSpanContext(ctx, parent), j, s)
}

func (t *Tracing) finish(ctx context.Context, j job, s span, options ...trace.SpanStartOption) {
	if s.from.IsZero() || s.from.After(s.to) {
		s.from = s.to
	}
	options = append(options, trace.WithTimestamp(s.from), trace.WithSpanKind(s.kind),
		trace.WithAttributes(s.attributes...), trace.WithLinks(s.links...))
	_, made := t.tracer(j.service).Start(ctx, s.name, options...)
	if s.failure != "" {
		made.SetAttributes(attribute.String("error.type", s.failure))
		made.SetStatus(codes.Error, "")
	}
	if s.events != nil {
		s.events(made)
	}
	made.End(trace.WithTimestamp(s.to))
}

// parentSpan is the span that those of an event hang on: the handler's where it is in the rollout's
// trace, else the rollout's.
func (j job) parentSpan() trace.SpanContext {
	first := firstSpan(j.fact)
	if j.work.IsValid() && j.work.TraceID() == first.TraceID() {
		return j.work
	}
	return first
}

func (j job) attributes() []attribute.KeyValue {
	return Subject{Run: j.fact.Run, Rollout: j.fact.Entity}.attributes()
}

// sampled is the model's span of a turn.
func (t *Tracing) sampled(ctx context.Context, j job, turn events.TurnSampled) {
	from := turn.StartedAt
	list := append(j.attributes(),
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.Int("gen_ai.usage.input_tokens", turn.PromptTokens),
		attribute.Int("gen_ai.usage.output_tokens", turn.CompletionTokens),
		attribute.Int("rondo.turn", turn.Turn), attribute.Int64("rondo.policy.version", turn.PolicyVersion),
		attribute.Bool("rondo.trainable", !turn.TextOnly))
	if reason := word(turn.FinishReason); reason != "" {
		list = append(list, attribute.StringSlice("gen_ai.response.finish_reasons", []string{reason}))
	}
	if turn.Summary != nil {
		list = append(list, attribute.Bool("gen_ai.conversation.compacted", true))
	}
	name := "chat"
	if cfg := t.configuration(ctx, j.fact.Run); cfg != nil {
		name += " " + cfg.policy
		list = append(list, modelOf(cfg, turn)...)
	}
	t.make(ctx, j, j.parentSpan(), span{name: name, kind: trace.SpanKindClient, from: from,
		to: endTime(from, turn.LatencyMS, j.at), attributes: list})
}

// modelOf says which model was asked, and how.
func modelOf(cfg *knownRun, turn events.TurnSampled) []attribute.KeyValue {
	provider := "openai" // the API that the server speaks
	if cfg.builtin {
		provider = "rondo"
	}
	with := cfg.sampling
	if turn.Sampling != nil {
		with = *turn.Sampling
	}
	list := []attribute.KeyValue{
		attribute.String("gen_ai.provider.name", provider), attribute.String("gen_ai.request.model", cfg.policy),
		attribute.Float64("gen_ai.request.temperature", with.Temperature),
		attribute.Int("gen_ai.request.max_tokens", with.MaxTokens),
	}
	if with.TopP != nil {
		list = append(list, attribute.Float64("gen_ai.request.top_p", *with.TopP))
	}
	if with.TopK != nil {
		list = append(list, attribute.Int("gen_ai.request.top_k", *with.TopK))
	}
	return list
}

// tools are the spans of a turn's tool calls.
func (t *Tracing) tools(ctx context.Context, j job, done events.ToolsCompleted) {
	for _, result := range done.Results {
		list := append(j.attributes(), attribute.Int("rondo.turn", done.Turn),
			attribute.String("rondo.isolation", done.Isolation))
		if result.ExitCode != nil {
			list = append(list, attribute.Int("rondo.tool.exit_code", *result.ExitCode))
		}
		if result.Cache != "" {
			list = append(list, attribute.String("rondo.tool.cache", result.Cache))
		}
		if id := word(result.CallID); id != "" {
			list = append(list, attribute.String("gen_ai.tool.call.id", id))
		}
		failure := ""
		if result.Error {
			failure = "tool_error"
		}
		t.tool(ctx, j, result.Name, failure, result.StartedAt, result.DurationMS, list)
	}
}

// answered is the span of a harness's call on its workspace.
func (t *Tracing) answered(ctx context.Context, j job, done events.WorkspaceAnswered) {
	list := append(j.attributes(), attribute.String("rondo.isolation", done.Isolation))
	if done.ExitCode != nil {
		list = append(list, attribute.Int("rondo.tool.exit_code", *done.ExitCode))
	}
	failure := ""
	if done.Lost != "" {
		failure = "workspace_lost"
	}
	t.tool(ctx, j, workspaceTool, failure, done.StartedAt, done.DurationMS, list)
}

func (t *Tracing) tool(ctx context.Context, j job, name, failure string, from time.Time, tookMS float64,
	list []attribute.KeyValue) {
	if cfg := t.configuration(ctx, j.fact.Run); cfg == nil || !cfg.tools[name] {
		name = "other" // a model may call a tool by any text
	}
	list = append(list, attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", name), attribute.String("gen_ai.tool.type", "function"))
	t.make(ctx, j, j.parentSpan(), span{name: "execute_tool " + name, kind: trace.SpanKindInternal, from: from,
		to: endTime(from, tookMS, j.at), attributes: list, failure: failure})
}

// words are what an id may look like: a server that writes something else is not quoted.
var words = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

func word(text string) string {
	if words.MatchString(text) {
		return text
	}
	return ""
}

// endTime is when something ended that began at a moment and took so many milliseconds; now where
// the beginning is not known.
func endTime(from time.Time, milliseconds float64, now time.Time) time.Time {
	if from.IsZero() {
		return now
	}
	return from.Add(time.Duration(milliseconds * float64(time.Millisecond)))
}

// workspaceTool is the name of a harness's calls on its workspace.
const workspaceTool = "workspace"

// knownRun is what is kept of a run's configuration.
type knownRun struct {
	policy   string
	builtin  bool
	sampling runfile.Sampling
	tools    map[string]bool // that it offers
}

// configuration is the configuration of a run, nil where it cannot be read.
func (t *Tracing) configuration(ctx context.Context, run string) *knownRun {
	if k, ok := t.runs.Get(run); ok {
		return k
	}
	cfg, err := t.log.Config(ctx, run)
	if err != nil {
		return nil
	}
	k := &knownRun{policy: cfg.Policy, builtin: cfg.Endpoint == runfile.BuiltinEndpoint, sampling: cfg.Sampling,
		tools: map[string]bool{workspaceTool: true, tools.SearchTool: true}}
	if set, err := t.sets.Set(cfg.ToolSettings()); err == nil {
		for _, d := range set.Definitions() {
			k.tools[d.Name] = true
		}
	}
	t.runs.Add(run, k)
	return k
}
