package generator

import (
	"context"
	"errors"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
)

// behindInstruction stands between a task's words and the summary of what was done for it.
const behindInstruction = "\n\n---\nYou have worked on this before. The context was full, so this is all that is left of the conversation: the summary that you wrote " +
	"of your work. The files are as you left them. Go on from there.\n\n"

// afterSummary is the number of the first turn behind the last summary among turns from one on;
// from, where there is none.
func afterSummary(turns []events.TurnSampled, from int) int {
	behind := len(turns)
	for behind > from && turns[behind-1].Summary == nil {
		behind--
	}
	return behind
}

// summed reports whether the next prompt begins with a summary, and so repeats nothing.
func summed(r *events.Rollout) bool {
	last := r.LastTurn()
	return last != nil && last.Summary != nil
}

// begun reports whether the agent has worked on the step in hand: a summary
// is of what was before it.
func begun(r *events.Rollout) bool {
	for _, t := range r.Turns[min(r.StepBegin(len(r.Steps)), len(r.Turns)):] {
		if t.Summary == nil {
			return true
		}
	}
	return false
}

// maySummarise reports whether the model is asked for a summary where the next prompt does
// not fit. Behind it there must be a turn left to use it; and a summary that does not fit
// itself is not summed up again.
func maySummarise(cfg runfile.RunConfig, r *events.Rollout) bool {
	if len(r.Turns) == 0 || summed(r) || len(r.Turns)+2 > cfg.Limits.Turns {
		return false
	}
	left := cfg.Summaries()
	for i := 0; i < len(r.Turns) && left > 0; i++ {
		if r.Turns[i].Summary != nil {
			left--
		}
	}
	return left > 0
}

// prompt is what is asked for a turn.
type prompt struct {
	messages []inference.Message
	written  inference.Written   // of the messages
	least    int                 // tokens, as far as is known
	spare    func(limit int) int // the room that must be left behind it; nil for any
}

// turnPrompt asks for the next turn. Where a summary may follow, it comes before the answer would
// be cut, and while there is room for it.
func turnPrompt(cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) prompt {
	p := prompt{least: leastPrompt(r)}
	p.messages, p.written = conversation(cfg, task, r)
	if summed(r) {
		p.least = bytesOf(p.messages) / mostBytes
	}
	if maySummarise(cfg, r) {
		p.spare = func(limit int) int { return min(max(limit/4, cfg.Sampling.MaxTokens), limit/2) }
	}
	return p
}

// summaryPrompt asks for a summary of the conversation as it is. An instruction that no turn has
// begun to follow is left out: it begins the next segment. What the last turn's tools answered is
// withheld where it leaves no room for a summary.
func summaryPrompt(cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout, withhold bool) prompt {
	messages, written, _ := history(cfg, task, r)
	request := summaryRequest(cfg)
	p := prompt{written: written, least: leastPrompt(r) + len(request.Content)/mostBytes}
	results := len(r.Tools.Answer(r.LastTurn().Turn).Results)
	if results > 0 && !withhold {
		p.spare = func(limit int) int { return limit / 8 }
	}
	if withhold {
		last := *r.LastTurn()
		var said int
		if p.least, said = leastTokens(&last); !last.Thought() {
			p.least += said
		}
		messages, p.written = slices.Clone(messages), inference.Written{}
		for i := len(messages) - results; i < len(messages); i++ {
			messages[i].Content = events.WithheldResult
		}
	}
	p.messages = append(messages, request)
	return p
}

func summaryRequest(cfg runfile.RunConfig) inference.Message {
	return inference.Message{Role: "user", Content: cfg.SummaryRequest()}
}

func bytesOf(messages []inference.Message) (n int) {
	for _, m := range messages {
		n += len(m.Content)
	}
	return n
}

// summarise asks the model to sum its work up. The summary is a turn: it is on the log before the
// conversation goes on with it, so that whoever goes on finds it there. Where the server takes no
// request for it, the step or the episode ends as it stands.
func (s *Service) summarise(ctx, asking context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout, m pipeline.Message) ([]events.Event, error) {
	summary := events.Summary{}
	t, answer, err := s.ask(asking, cfg, task, r, summaryPrompt(cfg, task, r, false), m)
	if overflow(err) != nil && len(r.Tools.Answer(r.LastTurn().Turn).Results) > 0 {
		summary.Withheld = true
		t, answer, err = s.ask(asking, cfg, task, r, summaryPrompt(cfg, task, r, true), m)
	}
	context.AfterFunc(ctx, answer.Done)
	var refused *inference.Failure
	switch {
	case err == nil:
	case ctx.Err() == nil && asking.Err() != nil:
		return nil, outOfTime(ctx, m, cfg.Limits, r, err)
	case ctx.Err() == nil && errors.As(err, &refused) && refused.Permanent &&
		(len(r.Turns) > r.Copied || refused.Overflow != nil):
		return s.full(ctx, cfg, task, r)
	default:
		return s.failed(ctx, cfg, r, m.Delivered, err)
	}
	summary.Calls = len(t.ToolCalls)
	t.Summary, t.ToolCalls, t.RoomTold = &summary, nil, ""
	sampled, err := r.Next(events.TurnSampledType, events.Ordinal(t.Turn), t)
	if err != nil {
		return nil, err
	}
	sampled.Route = runfile.RouteSummary
	return []events.Event{sampled}, pipeline.ErrCallAgain
}
