package generator

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/storage"
)

// trajectory lays a rollout out as one row per message. Rows carry only the tokens that they add:
// the prompt's new tokens stand with the last message before a turn, the sampled ones with the turn
// itself. Of the turns that a fork has of its origin nothing was sampled here: their rows have no
// version, and their tokens, where a turn of the fork's own continues them, no loss.
func trajectory(cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	stopReason string) (*storage.Trajectory, error) {
	t := &storage.Trajectory{
		Run: r.Run, Group: r.Started.Group, Rollout: r.ID, Task: task.Name,
		StopReason: stopReason, DispatchVersion: r.Started.PolicyVersion,
	}
	segment, known := int32(-1), contextFrom(r)
	begin := afterSummary(r.Turns[:known], 0) // what was said before is in no prompt of the rollout's own
	add := func(m storage.Message) *storage.Message {
		m.Index, m.Segment = int32(len(t.Messages)), max(segment, 0)
		t.Messages = append(t.Messages, m)
		return &t.Messages[len(t.Messages)-1]
	}
	say := func(turn int, messages ...inference.Message) {
		for _, m := range messages {
			add(storage.Message{Role: m.Role, Content: m.Content, Turn: int32(turn), PolicyVersion: -1})
		}
	}
	say(begin, opening(cfg.SystemPrompt, task, r, begin)...)
	for i, turn := range r.Turns {
		if i < begin {
			continue
		}
		anew := i > begin && r.Turns[i-1].Summary != nil
		switch in := r.StepOf(i); {
		case anew:
			segment = max(segment, 0) + 1
			say(turn.Turn, opening(cfg.SystemPrompt, task, r, i)...)
		case turn.Summary != nil:
			say(turn.Turn, summaryRequest(cfg))
		case i > begin && in > r.StepOf(i-1):
			say(turn.Turn, instruction(task, in))
		}
		if i < known {
			turn.TokenIDs, turn.Logprobs, turn.PromptDelta, turn.NewSegment, turn.VersionSpans, turn.Columns = nil,
				nil, nil, false, nil, nil
		}
		if turn.NewSegment && !anew {
			segment++
		}
		t.TextOnly = t.TextOnly || turn.TextOnly && i >= known
		prompt := &t.Messages[len(t.Messages)-1]
		if turn.NewSegment && segment > 0 && !anew {
			// The segment begins with a prompt of its own: no message of the
			// last segment may carry it.
			prompt = add(storage.Message{Role: events.RolePrompt, Turn: int32(turn.Turn), PolicyVersion: -1})
		}
		events.PromptTokens(prompt, turn.PromptDelta)
		row, err := turn.Row(0)
		if err != nil {
			return nil, err
		}
		if i < r.Copied {
			row.PolicyVersion = -1
			events.PromptTokens(&row, turn.TokenIDs)
		}
		add(row)
		answered := r.Tools.Answer(turn.Turn)
		withheld := i+1 < len(r.Turns) && r.Turns[i+1].Summary != nil && r.Turns[i+1].Summary.Withheld
		for _, result := range turn.ShownResults(answered.Results) {
			if withheld { // the model has seen no more; the log has it
				result.Content = events.WithheldResult
			}
			m := storage.Message{
				Role: "tool", Content: result.Content, Name: result.Name,
				ToolCallID: result.CallID, Turn: int32(turn.Turn),
				PolicyVersion: -1, StartedAt: result.StartedAt, Duration: milliseconds(result.DurationMS),
			}
			if answered.Workspace != nil {
				m.Workspace = answered.Workspace.Key
			}
			add(m)
		}
		say(turn.Turn, userMessages(r, turn.Turn)...)
	}
	t.TextOnly = t.TextOnly || len(r.Turns) <= r.Copied // nothing was sampled: not even the first prompt fits
	if t.TextOnly {
		t.Messages = textOnly(t.Messages)
	}
	return t, nil
}

// textOnly takes the tokens out of a trajectory some of whose turns have none: it cannot be trained
// on. Segments are left that begin with messages of their own, behind summaries.
func textOnly(messages []storage.Message) []storage.Message {
	var kept []storage.Message
	segment, last := int32(0), int32(0)
	for _, m := range messages {
		anew := m.Segment != last && m.Role != events.RolePrompt
		last = m.Segment
		if m.Role == events.RolePrompt {
			continue
		}
		if anew {
			segment++
		}
		m.TokenIDs, m.Logprobs, m.LossMask, m.Versions, m.Columns = nil, nil, nil, nil, nil
		m.Index, m.Segment = int32(len(kept)), segment
		kept = append(kept, m)
	}
	return kept
}

func milliseconds(ms float64) time.Duration {
	return time.Duration(float64(ms * float64(time.Millisecond)))
}

// stepFinished makes the fact that ends a step.
func stepFinished(r *events.Rollout, stopReason string) (events.Event, error) {
	ended := events.StepFinished{Step: len(r.Steps), StopReason: stopReason, Turns: len(r.Turns),
		Workspace: r.Workspace()}
	return r.Next(events.StepFinishedType, events.Ordinal(ended.Step), ended)
}

// finished writes the trajectory file and makes the fact that names it.
func (s *Service) finished(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	stopReason string) (events.Event, error) {
	t, err := trajectory(cfg, task, r, stopReason)
	if err != nil {
		return events.Event{}, err
	}
	data, err := storage.EncodeTrajectory(t)
	if err != nil {
		return r.Fail(events.StageGenerator, events.ClassInternal, fmt.Errorf("encode trajectory: %w", err))
	}
	fact, err := events.StoreTrajectory(ctx, s.store, t, data)
	if err != nil {
		return events.Event{}, err
	}
	fact.Turns, fact.Steps = len(r.Turns), len(r.Steps) // those of the origin, too
	fact.Workspace = r.Workspace()
	if last := len(r.Steps) - 1; last >= 0 {
		fact.Workspace = r.Steps[last].Workspace // the files of a step that does not follow may be laid over it already
	}
	return r.Next(events.RolloutFinishedType, "0", fact)
}
