package gateway

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// turnsAnswer is the answer of GET /rollouts/{id}/turns.
type turnsAnswer struct {
	Turns []turnTokens `json:"turns"`
}

// turnTokens are the tokens of a turn. Its whole prompt is what the turns of its segment before it
// have, prompts and answers, and PromptDelta.
type turnTokens struct {
	Turn        int       `json:"turn"`
	Segment     int       `json:"segment"` // the training sample that the turn is of
	PromptDelta []int32   `json:"prompt_delta,omitempty"`
	TokenIDs    []int32   `json:"token_ids,omitempty"`
	Logprobs    []float32 `json:"logprobs,omitempty"`
	TextOnly    bool      `json:"text_only,omitempty"` // the server gave no token ids
	// what made the server sample from another distribution than the policy's
	Constrained   []string             `json:"constrained,omitempty"`
	FinishReason  string               `json:"finish_reason"`
	PolicyVersion int64                `json:"policy_version"` // the oldest of its tokens; -1 for not known
	VersionSpans  []events.VersionSpan `json:"version_spans,omitempty"`
}

// turns answers with the tokens of a rollout's turns, in the order in which they were recorded,
// also behind its end. They are written one by one: all of them as one text would take several
// times the memory of the rollout.
func (g *Gateway) turns(w *stream, r *http.Request, t *tenant) error {
	ro, err := g.find(r, t)
	if err != nil {
		return err
	}
	w.begun, w.until = true, time.Now().Add(takeTime)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if w.send(`{"turns":[`) != nil {
		return nil
	}
	comma := ""
	for i, segment := range newTree(ro.Turns).of {
		turn := ro.Turns[i]
		body, err := json.Marshal(turnTokens{
			Turn: i, Segment: segment, PromptDelta: turn.PromptDelta, TokenIDs: turn.TokenIDs, Logprobs: turn.Logprobs,
			TextOnly: turn.TextOnly, Constrained: turn.Constrained,
			FinishReason: turn.FinishReason, PolicyVersion: turn.PolicyVersion, VersionSpans: turn.VersionSpans,
		})
		if err != nil {
			return err
		}
		if w.send(comma+string(body)) != nil {
			return nil // it is gone or does not read; what it has is no JSON
		}
		comma = ","
	}
	w.send("]}\n")
	return nil
}
