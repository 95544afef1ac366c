package inference

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// ErrTokens means that the server's token ids and log-probabilities contradict each other or are none.
var ErrTokens = errors.New("token ids and log-probabilities cannot be used")

// lacks names what training needs and the answer does not have. Token ids, log-probabilities and usage that contradict each other are an
// ErrTokens of tokens, not a lack.
func (r *Response) lacks() (lacks []string) {
	choice := r.Choices[0]
	triples := choice.MetaInfo.OutputTokenLogprobs != nil
	if len(r.PromptTokenIDs) == 0 && len(choice.PromptTokenIDs) == 0 {
		lacks = append(lacks, events.LackPromptIDs)
	}
	if choice.TokenIDs == nil && !triples {
		lacks = append(lacks, events.LackIDs)
	}
	if choice.Logprobs.Content == nil && !triples && (choice.TokenIDs == nil || len(choice.TokenIDs) > 0) {
		lacks = append(lacks, events.LackLogprobs)
	}
	if choice.unread() {
		lacks = append(lacks, events.LackTools)
	}
	return lacks
}

// agrees refuses a usage that counts other tokens than there are. Servers that count nothing say nothing.
func (r *Response) agrees(prompt, ids []int32) error {
	if n := r.Usage.PromptTokens; n > 0 && n != len(prompt) {
		return fmt.Errorf("%w: usage counts %d prompt tokens, prompt_token_ids has %d", ErrTokens, n, len(prompt))
	}
	if n := r.Usage.CompletionTokens; n > 0 && n != len(ids) {
		return fmt.Errorf("%w: usage counts %d completion tokens, token_ids has %d", ErrTokens, n, len(ids))
	}
	return nil
}

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
	signed := prompt
	if len(r.lifted) == len(prompt) && &r.lifted[0] == &prompt[0] {
		signed = nil
	}
	if err := check(signed, ids, logprobs); err != nil {
		return nil, nil, nil, err
	}
	return prompt, ids, logprobs, r.agrees(prompt, ids)
}

// rounding is how far above 0 the log-probability of a certain token may come out in half precision.
const rounding = 1e-3

// check refuses what is no token and no log-probability, and rounds those that came out just above 0.
func check(prompt, ids []int32, logprobs []float32) error {
	if len(ids) != len(logprobs) {
		return fmt.Errorf("%w: %d ids, %d log-probabilities", ErrTokens, len(ids), len(logprobs))
	}
	var signs int32
	for _, id := range prompt {
		signs |= id
	}
	if signs < 0 {
		i := slices.IndexFunc(prompt, func(id int32) bool { return id < 0 })
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

// missing is what vLLM writes for a log-probability that is none, and no sampled token has.
const missing = -9999

// sampled reads ids and log-probabilities from where a server puts them; nil where it gave none.
func sampled(choice Choice) (ids []int32, logprobs []float32, err error) {
	if triples := choice.MetaInfo.OutputTokenLogprobs; triples != nil {
		ids = []int32{}
		for _, triple := range triples {
			if !triple.there {
				return nil, nil, fmt.Errorf("%w: meta_info.output_token_logprobs is malformed", ErrTokens)
			}
			ids, logprobs = append(ids, triple.id), append(logprobs, triple.logprob)
		}
		if choice.TokenIDs != nil && !slices.Equal(ids, choice.TokenIDs) {
			return nil, nil, fmt.Errorf("%w: token_ids and meta_info.output_token_logprobs name other tokens", ErrTokens)
		}
		return ids, logprobs, nil
	}
	for i, t := range choice.Logprobs.Content {
		if t.Logprob == nil || *t.Logprob <= missing {
			return nil, nil, fmt.Errorf("%w: token %d has none", ErrTokens, i)
		}
		logprobs = append(logprobs, *t.Logprob)
	}
	return choice.TokenIDs, logprobs, nil
}
