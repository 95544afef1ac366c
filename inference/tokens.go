package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ErrTokens means that the server's token ids and log-probabilities contradict each other or are none.
var ErrTokens = errors.New("token ids and log-probabilities cannot be used")

// tokens are the prompt's token ids, the sampled ones, and the sampled ones' log-probabilities; all nil where the server gave
// none. What contradicts itself is an ErrTokens. The answer must have a choice.
func (r *Response) tokens() (prompt, ids []int32, logprobs []float32, err error) {
	choice := r.Choices[0]
	prompt = r.PromptTokenIDs
	if prompt == nil {
		prompt = choice.PromptTokenIDs
	}
	ids, logprobs, err = sampled(choice)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(prompt) == 0 || ids == nil || len(ids) > 0 && logprobs == nil {
		return nil, nil, nil, nil
	}
	return prompt, ids, logprobs, check(prompt, ids, logprobs)
}

// rounding is how far above 0 the log-probability of a certain token may come out in half precision.
const rounding = 1e-3

// check refuses what is no token and no log-probability, and rounds those that came out just above 0.
func check(prompt, ids []int32, logprobs []float32) error {
	if len(ids) != len(logprobs) {
		return fmt.Errorf("%w: %d ids, %d log-probabilities", ErrTokens, len(ids), len(logprobs))
	}
	if i := slices.IndexFunc(prompt, func(id int32) bool { return id < 0 }); i >= 0 {
		return fmt.Errorf("%w: prompt token %d is %d", ErrTokens, i, prompt[i])
	}
	for i, id := range ids {
		if p := logprobs[i]; id < 0 || !(p <= rounding) || p-p != 0 { // also NaN and -Inf
			return fmt.Errorf("%w: token %d is %d with log-probability %g", ErrTokens, i, id, p)
		}
		logprobs[i] = min(logprobs[i], 0)
	}
	return nil
}

// sampled reads ids and log-probabilities from where a server puts them; nil where it gave none.
func sampled(choice Choice) (ids []int32, logprobs []float32, err error) {
	if triples := choice.MetaInfo.OutputTokenLogprobs; triples != nil {
		ids = []int32{}
		for _, triple := range triples {
			var id *int32
			var logprob *float32
			if len(triple) < 2 || json.Unmarshal(triple[0], &logprob) != nil || json.Unmarshal(triple[1], &id) != nil || logprob == nil || id == nil {
				return nil, nil, fmt.Errorf("%w: meta_info.output_token_logprobs is malformed", ErrTokens)
			}
			ids, logprobs = append(ids, *id), append(logprobs, *logprob)
		}
		if choice.TokenIDs != nil && !slices.Equal(ids, choice.TokenIDs) {
			return nil, nil, fmt.Errorf("%w: token_ids and meta_info.output_token_logprobs name other tokens", ErrTokens)
		}
		return ids, logprobs, nil
	}
	for i, t := range choice.Logprobs.Content {
		if t.Logprob == nil {
			return nil, nil, fmt.Errorf("%w: token %d has none", ErrTokens, i)
		}
		logprobs = append(logprobs, *t.Logprob)
	}
	return choice.TokenIDs, logprobs, nil
}
