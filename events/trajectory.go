package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// RolePrompt is the role of a trajectory's row that holds nothing but the tokens of a prompt.
const RolePrompt = "prompt"

// Row is the turn as a row of a trajectory.
func (t TurnSampled) Row(segment int32) (storage.Message, error) {
	calls, err := CallsText(t.ToolCalls)
	mask := make([]bool, len(t.TokenIDs))
	for i := range mask {
		mask[i] = true
	}
	thoughts := ""
	if t.Reasoning != nil {
		thoughts = t.Reasoning.Text
	}
	return storage.Message{
		Role: "assistant", Content: t.Content, Reasoning: thoughts, ToolCalls: calls, Turn: int32(t.Turn), Segment: segment,
		TokenIDs: t.TokenIDs, Logprobs: t.Logprobs, LossMask: mask, Columns: t.Columns,
		PolicyVersion: t.PolicyVersion, Versions: t.RowVersions(), Constrained: len(t.Constrained) > 0, FinishReason: t.FinishReason,
		StartedAt: t.StartedAt, Duration: time.Duration(float64(t.LatencyMS * float64(time.Millisecond))),
	}, err
}

// PromptTokens puts tokens that were not sampled into a row.
func PromptTokens(row *storage.Message, ids []int32) {
	row.Versions = nil
	row.TokenIDs, row.Logprobs, row.LossMask = ids, make([]float32, len(ids)), make([]bool, len(ids))
}

// CallsText is how a row spells tool calls; "" where there are none.
func CallsText(calls []ToolCall) (string, error) {
	if len(calls) == 0 {
		return "", nil
	}
	text, err := json.Marshal(calls)
	return string(text), err
}

// NewRolloutFinished says what stands in a trajectory. The file is to be named.
func NewRolloutFinished(t *storage.Trajectory) RolloutFinished {
	f := RolloutFinished{
		Task: t.Task, StopReason: t.StopReason, Samples: len(t.Samples()), TextOnly: t.TextOnly,
		MinVersion: t.DispatchVersion, MaxVersion: t.DispatchVersion,
	}
	for _, m := range t.Messages {
		f.Tokens += len(m.TokenIDs)
		for _, sampled := range m.LossMask {
			if sampled {
				f.Sampled++
			}
		}
		f.Constrained += m.ConstrainedTokens()
		if m.Role == "assistant" {
			f.Turns = max(f.Turns, int(m.Turn)+1)
		}
		f.UnknownVersions += m.UnknownVersions()
		if low, high := m.VersionRange(); low >= 0 {
			f.MinVersion, f.MaxVersion = min(f.MinVersion, low), max(f.MaxVersion, high)
		}
	}
	return f
}

// Misfit reports whether not even the first prompt of the rollout fitted into the server's context: nothing was sampled.
func (f RolloutFinished) Misfit() bool { return f.StopReason == StopContext && f.Turns == 0 }

// StoreTrajectory stores the encoded file of a trajectory, and makes the payload that names it.
func StoreTrajectory(ctx context.Context, store storage.Store, t *storage.Trajectory, file []byte) (RolloutFinished, error) {
	f := NewRolloutFinished(t)
	var err error
	f.Trajectory, err = storage.PutPacked(ctx, store, "runs/"+t.Run+"/trajectories/"+t.Rollout, "arrow", file)
	if err != nil {
		return f, fmt.Errorf("store the trajectory of %s: %w", t.Rollout, err)
	}
	return f, nil
}
