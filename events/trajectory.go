package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// RolePrompt is the role of a trajectory's row that holds nothing but the tokens of a prompt.
const RolePrompt = "prompt"

// Row is the turn as a row of a trajectory.
func (t TurnSampled) Row(segment int32) (storage.Message, error) {
	calls, err := CallsText(t.ToolCalls)
	mask := make([]bool, len(t.TokenIDs))
	for i := range mask {
		mask[i] = t.MaskedBy() == ""
	}
	thoughts := ""
	if t.Reasoning != nil {
		thoughts = t.Reasoning.Text
	}
	return storage.Message{
		Role: "assistant", Content: t.Content, Reasoning: thoughts, ToolCalls: calls,
		Turn: int32(t.Turn), Segment: segment,
		TokenIDs: t.TokenIDs, Logprobs: t.Logprobs, LossMask: mask, Columns: t.Columns,
		PolicyVersion: t.PolicyVersion, Versions: t.RowVersions(), Constrained: len(t.Constrained) > 0,
		FinishReason: t.FinishReason,
		StartedAt:    t.StartedAt, Duration: time.Duration(float64(t.LatencyMS * float64(time.Millisecond))),
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
			f.MaxVersion = max(f.MaxVersion, high)
			if t.Masked[m.Segment] == "" {
				f.MinVersion = min(f.MinVersion, low)
			}
		}
	}
	return f
}

// Misfit reports whether not even the first prompt of the rollout fitted into the server's
// context: nothing was sampled.
func (f RolloutFinished) Misfit() bool { return f.StopReason == StopContext && f.Turns == 0 }

// StoreTrajectory stores the encoded file of a trajectory, and makes the payload that names it.
func StoreTrajectory(ctx context.Context, store storage.Store, t *storage.Trajectory,
	file []byte) (RolloutFinished, error) {
	f := NewRolloutFinished(t)
	var err error
	f.Trajectory, err = storage.PutPacked(ctx, store, "runs/"+t.Run+"/trajectories/"+t.Rollout, "arrow", file)
	if err != nil {
		return f, fmt.Errorf("store the trajectory of %s: %w", t.Rollout, err)
	}
	return f, nil
}

// Why a turn ended, whatever the server calls it; see package inference/vocabulary. A turn that ran
// elsewhere may have none.
const (
	FinishStop       = "stop"       // the model ended it
	FinishToolCalls  = "tool_calls" // the model ended it with calls of tools
	FinishLength     = "length"     // a limit cut it
	FinishRepetition = "repetition" // the server cut it, as it repeated itself
	FinishFiltered   = "filtered"   // the server cut it for what it says
	FinishAborted    = "aborted"    // the server gave it up to take up new weights: no turn
	FinishFailed     = "error"      // the server failed within it, or was stopped: no turn
	FinishUnknown    = "unknown"    // the server does not say, or in a word that nobody knows
)

// Finishes are the values of TurnSampled.FinishReason.
var Finishes = []string{FinishStop, FinishToolCalls, FinishLength, FinishRepetition, FinishFiltered, FinishUnknown}

// KnownFinish reports whether a turn's finish reason is one of them, or none: that of a turn that
// ran elsewhere, whose end nobody states.
func KnownFinish(reason string) bool { return reason == "" || slices.Contains(Finishes, reason) }

// Cut reports whether the turn did not end where the model ended it, so that a call in it may be
// half of one. What has no reason counts as ended.
func (t *TurnSampled) Cut() bool {
	return t.FinishReason != "" && t.FinishReason != FinishStop && t.FinishReason != FinishToolCalls
}

// Unoffered notes that the turn was offered no tools: text that looks like a call is text.
func (t *TurnSampled) Unoffered() {
	t.Lacks = slices.DeleteFunc(t.Lacks, func(lack string) bool { return lack == LackTools })
}

// OnlyConstrained reports whether all that was sampled in an episode was
// sampled under a constraint.
func (f RolloutFinished) OnlyConstrained() bool {
	return f.Constrained > 0 && f.Constrained >= f.Sampled
}

// MaskedBy is the rule of the run's `conversations` for which the turn is not
// trained on, "" for none.
func (t *TurnSampled) MaskedBy() string {
	if t.Conversation == nil || !t.Conversation.Masked {
		return ""
	}
	return t.Conversation.Rule
}

// AnsweredBy is the model that answered the turn in the place of the run's policy, "" for that.
func (t *TurnSampled) AnsweredBy() string {
	if t.Conversation == nil {
		return ""
	}
	return t.Conversation.Model
}

// AnsweredBy is TurnSampled.AnsweredBy of the turn with a number.
func (r *Rollout) AnsweredBy(turn int) string {
	i := slices.IndexFunc(r.Turns, func(t TurnSampled) bool { return t.Turn == turn })
	if i < 0 {
		return ""
	}
	return r.Turns[i].AnsweredBy()
}

// CheckAnswered says what is wrong with a turn's conversation where answered is the model that
// answers it by the run's rules, "" for the policy.
func (t *TurnSampled) CheckAnswered(answered string) error {
	switch said := t.AnsweredBy(); {
	case said != answered:
		return fmt.Errorf("conversation.model %.80q: by the rules of the run %s answers it", said,
			cmp.Or(answered, "the policy"))
	case said == "":
		return nil
	case !t.TextOnly || len(t.TokenIDs)+len(t.Logprobs)+len(t.PromptDelta) > 0:
		return fmt.Errorf("text_only: %.80q has answered, whose tokens are not the policy's: leave them out", said)
	case t.PolicyVersion != runfile.UnknownVersion || len(t.VersionSpans) > 0:
		return fmt.Errorf("policy_version %d: %.80q has answered, which is no version of the policy: state %d",
			t.PolicyVersion, said, runfile.UnknownVersion)
	}
	return nil
}

// MaskedTokens counts the sampled tokens of turns that are not trained on,
// by the rule that says so.
func MaskedTokens(turns []TurnSampled) (tokens map[string]int) {
	for _, t := range turns {
		if rule := t.MaskedBy(); rule != "" && len(t.TokenIDs) > 0 {
			if tokens == nil {
				tokens = map[string]int{}
			}
			tokens[rule] += len(t.TokenIDs)
		}
	}
	return tokens
}

// AllSampled counts what the model sampled in an episode, trained on or not.
func (f RolloutFinished) AllSampled() int {
	n := f.Sampled
	for _, tokens := range f.Masked {
		n += tokens
	}
	return n
}

// OnlyMasked reports whether all that was sampled in an episode is of conversations
// that are not trained on.
func (f RolloutFinished) OnlyMasked() bool { return f.Unsampled() && len(f.Masked) > 0 }

// Unsampled reports whether the model sampled not a single token that could be trained on, though
// its server gives tokens.
func (f RolloutFinished) Unsampled() bool { return !f.TextOnly && f.Sampled == 0 }

// Untold reports whether a rollout stopped for what may be the server's doing, so that its reward
// is not the model's: it is not trained on.
func Untold(stopReason string) bool {
	return stopReason == StopUnread || stopReason == StopUnknown || stopReason == StopRefused
}

// HasRequest reports whether a harness or an agent has asked for the turn,
// with messages of its own.
func (t *TurnSampled) HasRequest() bool { return t.After != nil || len(t.Prompt) > 0 }

// Stopped is why a rollout stopped with the turn, as far as the turn tells.
func (t *TurnSampled) Stopped() string {
	switch {
	case t.FinishReason == FinishUnknown:
		return StopUnknown
	case t.FinishReason == FinishFiltered:
		return StopFiltered
	case t.Cut():
		return StopLength
	case slices.Contains(t.Lacks, LackTools):
		return StopUnread
	}
	return StopFinished
}
