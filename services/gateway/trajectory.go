package gateway

import (
	"encoding/json"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// rolePrompt is the role of a row that holds nothing but the tokens of a prompt.
const rolePrompt = "prompt"

// trajectory lays a rollout out as one row per message: for each turn what it was asked with, and what it said.
func trajectory(r *events.Rollout, stopReason string) (*storage.Trajectory, error) {
	t := &storage.Trajectory{
		Run: r.Run, Group: r.Started.Group, Rollout: r.ID, Task: r.Started.Task,
		StopReason: stopReason, DispatchVersion: r.Started.PolicyVersion,
	}
	for _, turn := range r.Turns {
		t.TextOnly = t.TextOnly || turn.TextOnly
	}
	segments := newTree(r.Turns).of
	for i, turn := range r.Turns {
		rows, err := turnRows(turn, int32(i), int32(segments[i]), t.TextOnly)
		if err != nil {
			return nil, err
		}
		t.Messages = append(t.Messages, rows...)
	}
	for i := range t.Messages {
		t.Messages[i].Index = int32(i)
	}
	return t, nil
}

// turnRows are the rows of one turn.
func turnRows(turn events.TurnSampled, index, segment int32, textOnly bool) ([]storage.Message, error) {
	var rows []storage.Message
	for _, m := range turn.Prompt {
		calls, err := callsText(m.ToolCalls)
		if err != nil {
			return nil, err
		}
		row := storage.Message{Role: m.Role, Content: m.Content, Name: m.Name, ToolCallID: m.ToolCallID, ToolCalls: calls, Turn: index, Segment: segment, PolicyVersion: -1}
		if m.Role == "tool" && turn.After != nil {
			row.Turn = int32(*turn.After) // it answers that turn
		}
		rows = append(rows, row)
	}
	calls, err := callsText(turn.ToolCalls)
	if err != nil {
		return nil, err
	}
	answer := storage.Message{
		Role: "assistant", Content: turn.Content, ToolCalls: calls, Turn: index, Segment: segment,
		PolicyVersion: turn.PolicyVersion, FinishReason: turn.FinishReason, StartedAt: turn.StartedAt, Duration: duration(turn.LatencyMS),
	}
	if textOnly {
		return append(rows, answer), nil
	}
	if len(rows) == 0 || turn.NewSegment && turn.After != nil {
		// The tokens are those of messages that stand elsewhere already.
		rows = append(rows, storage.Message{Role: rolePrompt, Turn: index, Segment: segment, PolicyVersion: -1})
	}
	last := &rows[len(rows)-1]
	last.TokenIDs, last.Logprobs, last.LossMask = turn.PromptDelta, make([]float32, len(turn.PromptDelta)), make([]bool, len(turn.PromptDelta))
	answer.TokenIDs, answer.Logprobs, answer.LossMask = turn.TokenIDs, turn.Logprobs, make([]bool, len(turn.TokenIDs))
	for i := range answer.LossMask {
		answer.LossMask[i] = true
	}
	return append(rows, answer), nil
}

func callsText(calls []events.ToolCall) (string, error) {
	if len(calls) == 0 {
		return "", nil
	}
	text, err := json.Marshal(calls)
	return string(text), err
}

// figures are what the fact rollout.finished says of a trajectory.
func figures(t *storage.Trajectory, r *events.Rollout) events.RolloutFinished {
	f := events.RolloutFinished{
		Task: t.Task, StopReason: t.StopReason, Turns: len(r.Turns), Samples: len(t.Samples()), TextOnly: t.TextOnly,
		MinVersion: t.DispatchVersion, MaxVersion: t.DispatchVersion,
	}
	for _, m := range t.Messages {
		f.Tokens += len(m.TokenIDs)
		for _, sampled := range m.LossMask {
			if sampled {
				f.Sampled++
			}
		}
		if m.PolicyVersion >= 0 {
			f.MinVersion, f.MaxVersion = min(f.MinVersion, m.PolicyVersion), max(f.MaxVersion, m.PolicyVersion)
		}
	}
	return f
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
