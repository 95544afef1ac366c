package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
)

// stepScored is the verifier's span of a stage.
func (t *Tracing) stepScored(ctx context.Context, j job, verdict events.StepScored) {
	t.verdict(ctx, j, "step", nil, verdict.DurationMS)
}

// scored is the verifier's span, and that of the whole rollout, which is over.
func (t *Tracing) scored(ctx context.Context, j job, scored events.RolloutScored) {
	t.verdict(ctx, j, "verifier", &scored.Reward, scored.DurationMS)
	t.rollout(ctx, j, "", attribute.String("rondo.outcome", "scored"), attribute.Float64("rondo.reward", scored.Reward),
		attribute.Bool("rondo.forfeit", scored.Forfeit != nil))
}

func (t *Tracing) verdict(ctx context.Context, j job, name string, reward *float64, tookMS float64) {
	list := append(j.attributes(), attribute.String("gen_ai.evaluation.name", name))
	if reward != nil {
		list = append(list, attribute.Float64("gen_ai.evaluation.score.value", *reward))
	}
	t.make(ctx, j, j.parentSpan(), span{
		name: "evaluate " + name, kind: trace.SpanKindInternal,
		from: j.at.Add(-time.Duration(tookMS * float64(time.Millisecond))), to: j.at, attributes: list,
		events: func(made trace.Span) { made.AddEvent("gen_ai.evaluation.result", trace.WithAttributes(list...)) },
	})
}

// retried is the span of a try that failed.
func (t *Tracing) retried(ctx context.Context, j job, retried events.RolloutRetried) {
	list := append(j.attributes(), attribute.String("rondo.stage", retried.Stage),
		attribute.Int("rondo.try", retried.Try))
	t.make(ctx, j, j.parentSpan(), span{name: "try failed", to: j.at, attributes: list, failure: retried.Class})
}

func (t *Tracing) failed(ctx context.Context, j job, failed events.RolloutFailed) {
	t.rollout(ctx, j, failed.Class, attribute.String("rondo.outcome", "failed"),
		attribute.String("rondo.stage", failed.Stage))
}

// rollout is the first span of a trace, from the start of the rollout to its outcome. It is made
// when that is known, by the process that states it.
func (t *Tracing) rollout(ctx context.Context, j job, failure string, outcome ...attribute.KeyValue) {
	first := firstSpan(j.fact)
	begun, err := t.log.LastOfType(ctx, j.fact.Run, events.RolloutStartedType, j.fact.Entity)
	if !first.IsValid() || err != nil {
		return
	}
	started, err := events.Data[events.RolloutStarted](begun)
	if err != nil {
		return
	}
	list := append(append(j.attributes(), outcome...),
		attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.id", j.fact.Entity),
		attribute.String("rondo.group", started.Group), attribute.String("rondo.task", started.Task),
		attribute.Int64("rondo.policy.version", started.PolicyVersion))
	name := "invoke_agent"
	if cfg := t.configuration(ctx, j.fact.Run); cfg != nil {
		name += " " + cfg.policy
		list = append(list, attribute.String("gen_ai.agent.name", cfg.policy))
	}
	if e, err := t.log.LastOfType(ctx, j.fact.Run, events.RolloutFinishedType, j.fact.Entity); err == nil {
		if done, err := events.Data[events.RolloutFinished](e); err == nil {
			list = append(list, attribute.String("rondo.stop_reason", done.StopReason),
				attribute.Int("rondo.turns", done.Turns), attribute.Int("rondo.tokens", done.Tokens))
		}
	}
	t.first(ctx, j, first, span{name: name, kind: trace.SpanKindInternal, from: begun.Time, to: j.at,
		attributes: list, failure: failure})
}

// first makes the first span of a trace, whose ids are given.
func (t *Tracing) first(ctx context.Context, j job, ids trace.SpanContext, s span) {
	t.finish(withIDs(ctx, ids), j, s, trace.WithNewRoot())
}

// traceOf is the first span of a rollout's trace, by the last event that is known of it.
func (t *Tracing) traceOf(ctx context.Context, run, rollout string) trace.SpanContext {
	last, err := t.log.Last(ctx, run, events.RolloutStartedType.Kind(), rollout)
	if err != nil {
		return trace.SpanContext{}
	}
	return firstSpan(last)
}

// completed are the spans of advantages: one in the trace of each member.
func (t *Tracing) completed(ctx context.Context, j job, group events.GroupCompleted) {
	for _, m := range group.Members {
		list := append(Subject{Run: j.fact.Run, Rollout: m.Rollout}.attributes(),
			attribute.String("rondo.group", j.fact.Entity),
			attribute.Float64("rondo.advantage", m.Advantage), attribute.Bool("rondo.failed", m.Failed))
		t.inTrace(ctx, j, m.Rollout, span{name: "advantage " + group.Estimator, attributes: list})
	}
}

// dropped are the spans of a group that a feed will not train on: one in the trace of each member.
func (t *Tracing) dropped(ctx context.Context, j job, drop events.GroupDropped) {
	e, err := t.log.LastOfType(ctx, j.fact.Run, events.GroupCompletedType, j.fact.Entity)
	if err != nil {
		return
	}
	group, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return
	}
	for _, m := range group.Members {
		list := append(Subject{Run: j.fact.Run, Rollout: m.Rollout}.attributes(),
			attribute.String("rondo.feed", drop.Feed),
			attribute.String("rondo.drop.reason", drop.Reason), attribute.String("rondo.drop.filter", drop.Filter))
		t.inTrace(ctx, j, m.Rollout, span{name: "drop " + drop.Feed, attributes: list})
	}
}

// batched are the spans of a batch: one in the trace of each of its rollouts, and one of
// its own with links to them.
func (t *Tracing) batched(ctx context.Context, j job, batch events.BatchReady) {
	own := firstSpan(j.fact)
	if !own.IsValid() {
		return
	}
	feed := j.fact.Entity
	list := []attribute.KeyValue{attribute.String("rondo.run", j.fact.Run), attribute.String("rondo.feed", feed),
		attribute.Int64("rondo.step", batch.Step)}
	whole := span{name: "batch " + feed, kind: trace.SpanKindProducer, from: j.fact.DecidedAt, to: j.at}
	for _, id := range batch.Rollouts {
		if first := t.traceOf(ctx, j.fact.Run, id); first.IsValid() {
			whole.links = append(whole.links, trace.Link{SpanContext: first,
				Attributes: []attribute.KeyValue{attribute.String("rondo.rollout", id)}})
			t.make(ctx, j, first, span{
				name: whole.name, kind: whole.kind, from: whole.from, to: whole.to,
				links:      []trace.Link{{SpanContext: own}},
				attributes: append(Subject{Run: j.fact.Run, Rollout: id}.attributes(), list[1:]...),
			})
		}
	}
	whole.attributes = append(list, attribute.Int("rondo.rollouts", len(batch.Rollouts)),
		attribute.Int("rondo.samples", batch.Samples),
		attribute.Int64("rondo.tokens", batch.Tokens), attribute.Int64("rondo.staleness", batch.Staleness),
		attribute.Float64("rondo.reward.mean", batch.RewardMean))
	t.first(ctx, j, own, whole)
}

// inTrace makes a span of a decision in a rollout's trace.
func (t *Tracing) inTrace(ctx context.Context, j job, rollout string, s span) {
	if first := t.traceOf(ctx, j.fact.Run, rollout); first.IsValid() {
		s.kind, s.from, s.to = trace.SpanKindInternal, j.fact.DecidedAt, j.at
		t.make(ctx, j, first, s)
	}
}
