package generator

import (
	"context"
	"errors"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// mostBytes is how many bytes of text a token has at most, as a rule: of code and prose it has three to five.
const mostBytes = 8

// leastPrompt is how many tokens the next prompt has at least, as far as that is known: those of the last turn, and what was said since.
func leastPrompt(r *events.Rollout) int {
	last := r.LastTurn()
	if last == nil {
		return 0
	}
	said, since := last.CompletionTokens, 0
	if thought(*last) { // templates may leave thoughts out of the next prompt
		visible := last.Content
		if _, behind, ended := strings.Cut(visible, inference.EndOfThoughts); ended {
			visible = behind
		}
		said, since = 0, len(visible)
		for _, c := range last.ToolCalls {
			since += len(c.Arguments)
		}
	}
	for _, result := range r.Tools[last.Turn].Results {
		since += len(result.Content)
	}
	return last.PromptTokens + said + since/mostBytes
}

// contextFull reports whether a turn failed because the conversation is as long as the server's context. An agent that has said nothing yet has
// nothing that could be scored: that its task does not fit is a mistake of the run's.
func contextFull(r *events.Rollout, err error) bool {
	var f *inference.Failure
	return errors.As(err, &f) && f.Overflow != nil && len(r.Turns) > r.Copied
}

// full ends the step or the episode where the next prompt does not fit: what there is counts. A step without a turn is not begun.
func (s *Service) full(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) ([]events.Event, error) {
	what := finish
	if len(task.Steps) > 0 && r.StepBegin(len(r.Steps)) < len(r.Turns) {
		what = endStep
	}
	return s.end(ctx, cfg, task, r, what, events.StopContext)
}
