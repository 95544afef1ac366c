package generator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// errTokens: the server's token ids and log-probabilities contradict each other or are none.
var errTokens = errors.New("token ids and log-probabilities cannot be used")

// tokens fills in token ids and log-probabilities, or marks the turn as text only where the server gave none: what
// was sampled must be known exactly to be trained on.
func tokens(r *events.Rollout, answer *chatResponse, t *events.TurnSampled) error {
	choice := answer.Choices[0]
	prompt := answer.PromptTokenIDs
	if prompt == nil {
		prompt = choice.PromptTokenIDs
	}
	ids, logprobs, err := sampled(choice)
	if err != nil {
		return err
	}
	if len(prompt) == 0 || ids == nil || len(ids) > 0 && logprobs == nil {
		t.TextOnly = true
		return nil
	}
	if err := check(prompt, ids, logprobs); err != nil {
		return err
	}
	t.TokenIDs, t.Logprobs = ids, logprobs
	t.PromptTokens, t.CompletionTokens = len(prompt), len(ids)
	t.PromptDelta, t.NewSegment = delta(r, prompt)
	return nil
}

// rounding is how far above 0 the log-probability of a certain token may come out in half precision.
const rounding = 1e-3

// check refuses what is no token and no log-probability, and rounds those that came out just above 0.
func check(prompt, ids []int32, logprobs []float32) error {
	if len(ids) != len(logprobs) {
		return fmt.Errorf("%w: %d ids, %d log-probabilities", errTokens, len(ids), len(logprobs))
	}
	if i := slices.IndexFunc(prompt, func(id int32) bool { return id < 0 }); i >= 0 {
		return fmt.Errorf("%w: prompt token %d is %d", errTokens, i, prompt[i])
	}
	for i, id := range ids {
		if p := logprobs[i]; id < 0 || !(p <= rounding) || p-p != 0 { // also NaN and -Inf
			return fmt.Errorf("%w: token %d is %d with log-probability %g", errTokens, i, id, p)
		}
		logprobs[i] = min(logprobs[i], 0)
	}
	return nil
}

// sampled reads ids and log-probabilities from where a server puts them; nil where it gave none.
func sampled(choice chatChoice) (ids []int32, logprobs []float32, err error) {
	if triples := choice.MetaInfo.OutputTokenLogprobs; triples != nil {
		ids = []int32{}
		for _, triple := range triples {
			var id *int32
			var logprob *float32
			if len(triple) < 2 || json.Unmarshal(triple[0], &logprob) != nil || json.Unmarshal(triple[1], &id) != nil || logprob == nil || id == nil {
				return nil, nil, fmt.Errorf("%w: meta_info.output_token_logprobs is malformed", errTokens)
			}
			ids, logprobs = append(ids, *id), append(logprobs, *logprob)
		}
		if choice.TokenIDs != nil && !slices.Equal(ids, choice.TokenIDs) {
			return nil, nil, fmt.Errorf("%w: token_ids and meta_info.output_token_logprobs name other tokens", errTokens)
		}
		return ids, logprobs, nil
	}
	for i, t := range choice.Logprobs.Content {
		if t.Logprob == nil {
			return nil, nil, fmt.Errorf("%w: token %d has none", errTokens, i)
		}
		logprobs = append(logprobs, *t.Logprob)
	}
	return choice.TokenIDs, logprobs, nil
}

// delta is what the prompt adds to the tokens of the current segment. Where the prompt is not an exact
// continuation (a template that drops reasoning, a re-tokenised answer), a new segment begins with all of it.
func delta(r *events.Rollout, prompt []int32) (added []int32, newSegment bool) {
	begin := len(r.Turns) - 1
	for begin >= 0 && !r.Turns[begin].NewSegment {
		begin--
	}
	if begin < 0 {
		return prompt, true
	}
	rest := prompt
	for _, t := range r.Turns[begin:] {
		for _, known := range [][]int32{t.PromptDelta, t.TokenIDs} {
			if t.TextOnly || len(rest) < len(known) || !slices.Equal(rest[:len(known)], known) {
				return prompt, true
			}
			rest = rest[len(known):]
		}
	}
	return rest, false
}
