package inference

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// ErrTokens means that the server's token ids and log-probabilities contradict each other or are
// none; where the latter is so of log-probabilities, it comes with tokencheck.ErrNone.
var ErrTokens = errors.New("token ids and log-probabilities cannot be used")

// lacks names what training needs and the answer does not have. Token ids, log-probabilities and
// usage that contradict each other are an ErrTokens of tokens, not a lack.
func (r *Response) lacks() (lacks []string) {
	choice := r.Choices[0]
	triples := choice.MetaInfo.OutputTokenLogprobs != nil
	if len(r.PromptTokenIDs) == 0 && len(choice.PromptTokenIDs) == 0 {
		lacks = append(lacks, events.LackPromptIDs)
	}
	if choice.TokenIDs == nil && !triples {
		lacks = append(lacks, events.LackIDs)
	}
	if choice.Logprobs.Content == nil && choice.logprobs == nil && !triples &&
		(choice.TokenIDs == nil || len(choice.TokenIDs) > 0) {
		lacks = append(lacks, events.LackLogprobs)
	}
	if choice.unread() {
		lacks = append(lacks, events.LackTools)
	}
	return lacks
}

// agrees refuses a usage that counts other tokens than there are. Servers that
// count nothing say nothing.
func (r *Response) agrees(prompt, ids []int32) error {
	if n := r.Usage.PromptTokens; n > 0 && int(n) != len(prompt) {
		return fmt.Errorf("%w: usage counts %d prompt tokens, prompt_token_ids has %d", ErrTokens, n, len(prompt))
	}
	if n := r.Usage.CompletionTokens; n > 0 && int(n) != len(ids) {
		return fmt.Errorf("%w: usage counts %d completion tokens, token_ids has %d", ErrTokens, n, len(ids))
	}
	return nil
}

// tokens are the prompt's token ids, the sampled ones, and the sampled ones'
// log-probabilities; all nil where the server gave none. What contradicts itself is an
// ErrTokens. The answer must have a choice.
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

// check refuses what is no token and no log-probability, and rounds those
// that came out just above 0.
func check(prompt, ids []int32, logprobs []float32) error {
	if err := tokencheck.IDs(prompt); err != nil {
		return fmt.Errorf("%w: prompt: %w", ErrTokens, err)
	}
	tokencheck.Round(logprobs)
	if err := tokencheck.Sampled(ids, logprobs); err != nil {
		return fmt.Errorf("%w: %w", ErrTokens, err)
	}
	return nil
}

// sampled reads ids and log-probabilities from where a server puts them; nil where it gave none.
func sampled(choice Choice) (ids []int32, logprobs []float32, err error) {
	if triples := choice.MetaInfo.OutputTokenLogprobs; triples != nil {
		ids = []int32{}
		for i, triple := range triples {
			if !triple.there {
				return nil, nil,
					fmt.Errorf("%w: meta_info.output_token_logprobs: token %d has no log-probability, or no id",
						ErrTokens, i)
			}
			ids, logprobs = append(ids, triple.id), append(logprobs, triple.logprob)
		}
		if choice.TokenIDs != nil && !slices.Equal(ids, choice.TokenIDs) {
			return nil, nil, fmt.Errorf("%w: token_ids and meta_info.output_token_logprobs name other tokens",
				ErrTokens)
		}
		return ids, logprobs, nil
	}
	if choice.logprobs != nil {
		return choice.TokenIDs, choice.logprobs, nil
	}
	for i, t := range choice.Logprobs.Content {
		if t.Logprob == nil {
			return nil, nil, fmt.Errorf("%w: token %d has null, %w", ErrTokens, i, tokencheck.ErrNone)
		}
		logprobs = append(logprobs, float32(*t.Logprob))
	}
	return choice.TokenIDs, logprobs, nil
}
