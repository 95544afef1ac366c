package generator

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
)

// mostBytes is how many bytes of text a token has at most, as a rule: of code and
// prose it has three to five.
const mostBytes = 8

// leastPrompt is how many tokens the next prompt has at least, as far as that is known: those of
// the last turn, and what was said since.
func leastPrompt(r *events.Rollout) int {
	last := r.LastTurn()
	if last == nil {
		return 0
	}
	prompt, said := leastTokens(last)
	since := 0
	if last.Thought() { // templates may leave thoughts out of the next prompt
		said, since = 0, len(last.RepeatedText())
		for _, c := range last.ToolCalls {
			since += len(c.Arguments)
		}
	}
	for _, result := range last.ShownResults(r.Tools.Answer(last.Turn).Results) {
		since += len(result.Content)
	}
	for _, m := range userMessages(r, last.Turn) {
		since += len(m.Content)
	}
	return prompt + said + since/mostBytes
}

// leastTokens are how many tokens a turn's prompt and answer have at least: what is
// estimated may be twice as many.
func leastTokens(t *events.TurnSampled) (prompt, said int) {
	if t.TokensEstimated {
		return t.PromptTokens * events.BytesPerToken / mostBytes, t.CompletionTokens * events.BytesPerToken / mostBytes
	}
	return t.PromptTokens, t.CompletionTokens
}

// overflow is the refusal of a prompt that does not fit, or leaves too little
// room; nil of other errors.
func overflow(err error) *inference.Overflow {
	var f *inference.Failure
	if !errors.As(err, &f) {
		return nil
	}
	return f.Overflow
}

// refusal is that of a prompt for what it holds, by a filter or in words that nobody
// knows; nil of other errors.
func refusal(err error) *inference.Failure {
	var f *inference.Failure
	if errors.As(err, &f) && (f.Refusal == inference.RefusalFiltered || f.Refusal == inference.RefusalUnknown) {
		return f
	}
	return nil
}

// refused asks again where the server has answered the rollout before, and then ends the step or
// the episode: the model's name and the parameters are right, so it is what the conversation holds,
// as where it does not fit. Where it has answered nothing there is nothing to score: the rollout
// fails, and the sampler sees whether all do.
func (s *Service) refused(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	f *inference.Failure) ([]events.Event, error) {
	if len(r.Turns) == r.Copied {
		fact, err := r.Fail(events.StageGenerator, events.ClassRefused, f)
		return []events.Event{fact}, err
	}
	if r.Tries+1 < cfg.Limits.Tries {
		fact, _, err := r.Retry(cfg.Limits, events.StageGenerator, events.ClassRefused, f)
		if err != nil {
			return nil, err
		}
		return []events.Event{fact}, pipeline.RetryAfter(f, pipeline.NextTry.Delay(r.Tries+1))
	}
	stop := events.StopRefused
	if f.Refusal == inference.RefusalFiltered {
		stop = events.StopFiltered
	}
	return s.asItStands(ctx, cfg, task, r, stop)
}

// full ends the step or the episode where the next prompt does not fit.
func (s *Service) full(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]events.Event, error) {
	return s.asItStands(ctx, cfg, task, r, events.StopContext)
}

// asItStands ends the step or the episode where there is no next turn: what there is counts. A step
// without a turn is not begun, unless it is the first one: a task with steps is scored by these.
func (s *Service) asItStands(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	stop string) ([]events.Event, error) {
	what := finish
	if len(task.Steps) > 0 && (begun(r) || len(r.Steps) == 0) {
		what = endStep
	}
	return s.end(ctx, cfg, task, r, what, stop)
}

// roomTold tells the model how much of its context it has used: of the server's or of the run's
// limit, whichever is reached first. A server that counts no tokens leaves nothing to tell.
func roomTold(limits runfile.Limits, t *events.TurnSampled, context int) string {
	limit := limits.Tokens
	if context > 0 {
		limit = min(limit, context)
	}
	if t.Used() == 0 || limit <= 0 {
		return ""
	}
	return events.RoomText(t.Used(), limit)
}
