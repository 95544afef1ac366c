package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/memory"
)

// Tokens in, tokens out: the prompt is the tokens that the model has seen and sampled, and those of the new messages. The server renders and parses, as it alone knows the
// model's template. This is the interface of vLLM 0.33:
//
//	POST /v1/chat/completions/render    a chat request; answers with the request for the next one: token_ids, sampling_params, parse_context
//	POST /inference/v1/generate         answers with choices[].token_ids and logprobs, and in output_mode "derender" with the message
//	POST /v1/chat/completions/derender  answers with the message: for 0.32, whose rendering has no parse_context and whose generate refuses output_mode "derender"
//
// Versions differ in how an entry of logprobs names its token: token_id, or token "token_id:N", or its text.

// Conversation is what the next turn is asked with, where prompts are tokens.
type Conversation struct {
	// Request holds the whole conversation as messages, the new ones behind the last answer.
	Request Request
	// Known are the tokens up to the end of the last sample, which is the last Sampled of them; none where the turn begins a segment.
	Known   []int32
	Sampled int
	// Unsure: the last sample does not end with a stop token, or perhaps not.
	Unsure bool
}

// CompleteTokens asks for one turn as tokens. fit says how many tokens the answer may have behind a prompt of so many. Its errors are *Failures that do not tell the key.
// The caller calls Done as with Complete.
func (c *Client) CompleteTokens(ctx context.Context, endpoint string, conv Conversation, fit func(prompt int) (most int, full *Failure)) (*Response, error) {
	share := answers.Share(endpoint)
	answer, err := c.completeTokens(ctx, strings.TrimSuffix(endpoint, "/"), conv, fit, share)
	if err != nil {
		share.End()
		return nil, err
	}
	answer.share = share
	answer.arrived = time.Now()
	return answer, nil
}

func (c *Client) completeTokens(ctx context.Context, base string, conv Conversation, fit func(int) (int, *Failure), share *memory.Share) (*Response, error) {
	request, prompt, err := c.prompt(ctx, base, conv, share)
	if err != nil {
		return nil, err
	}
	most, full := fit(len(prompt))
	if full != nil {
		return nil, full
	}
	if err := request.ask(prompt, most); err != nil {
		return nil, malformed(base+renderPath, err)
	}
	url := strings.TrimSuffix(base, "/v1") + "/inference/v1/generate"
	var answer Response
	if err := c.ask(ctx, url, request.fields, &answer, share); err != nil {
		return nil, lacksTokens(err)
	}
	if err := answer.answers(prompt, most); err != nil {
		return nil, malformed(url, err)
	}
	if !answer.Choices[0].parsed() {
		if err := c.derender(ctx, base, conv.Request, &answer, share); err != nil {
			return nil, err
		}
	}
	return &answer, nil
}

// renderPath is where a server renders messages as tokens.
const renderPath = "/chat/completions/render"

// rendered is a server's rendering of a chat request: the request for generate, which is passed on as it is but for what Rondo decides.
type rendered struct {
	tokens []int32
	fields map[string]json.RawMessage
}

// UnmarshalJSON keeps all fields but the tokens as they are.
func (r *rendered) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &r.fields); err != nil {
		return err
	}
	if err := json.Unmarshal(r.fields["token_ids"], &r.tokens); err != nil {
		return fmt.Errorf("token_ids: %w", err)
	}
	for name := range r.fields { // what is large, or names the rendering and not the prompt
		if name == "token_ids" || name == "token_offsets" || string(r.fields[name]) == "null" {
			delete(r.fields, name)
		}
	}
	return nil
}

// ask makes the request of a prompt for an answer of most tokens.
func (r *rendered) ask(prompt []int32, most int) error {
	var params map[string]json.RawMessage
	if err := json.Unmarshal(r.fields["sampling_params"], &params); err != nil || params == nil {
		return errors.New("the rendering has no sampling_params")
	}
	mode := "tokens"
	if _, parses := r.fields["parse_context"]; parses {
		mode = "derender"
	}
	for _, set := range []struct {
		in    map[string]json.RawMessage
		name  string
		value any
	}{
		{params, "max_tokens", most}, {r.fields, "sampling_params", params}, {r.fields, "token_ids", prompt},
		{r.fields, "output_mode", mode}, {r.fields, "return_token_ids", true}, {r.fields, "stream", false},
	} {
		value, err := Encode(set.value)
		if err != nil {
			return err
		}
		set.in[set.name] = value
	}
	return nil
}

// render has the server render messages as tokens. What is asked for beside them is for the answer to the prompt.
func (c *Client) render(ctx context.Context, base string, request Request, messages []Message, prompts bool, share *memory.Share) (*rendered, error) {
	request.Messages, request.MaxTokens, request.AddGenerationPrompt = messages, 1, &prompts // a rendering for a longer answer could be refused
	var answer rendered
	if err := c.ask(ctx, base+renderPath, request, &answer, share); err != nil {
		return nil, lacksTokens(err)
	}
	if len(answer.tokens) == 0 || slices.Min(answer.tokens) < 0 {
		return nil, malformed(base+renderPath, fmt.Errorf("%w: want token ids from 0 on", ErrTokens))
	}
	return &answer, nil
}

// prompt is the next prompt, with the request that the server made of its messages. It is the tokens known and those of the new messages, as the difference of two renderings: with and
// without them. Both leave earlier thoughts out, as templates may, so that nothing but the new messages makes them differ. Where they differ in more, or nothing is
// known, the prompt is the rendering of all messages.
func (c *Client) prompt(ctx context.Context, base string, conv Conversation, share *memory.Share) (*rendered, []int32, error) {
	messages := conv.Request.Messages
	last := len(messages) - 1
	for last >= 0 && messages[last].Role != roleAssistant {
		last--
	}
	if len(conv.Known) == 0 || conv.Sampled <= 0 || conv.Sampled > len(conv.Known) || last < 0 {
		whole, err := c.render(ctx, base, conv.Request, messages, true, share)
		if err != nil {
			return nil, nil, err
		}
		return whole, whole.tokens, nil
	}
	plain := withoutThoughts(messages)
	old, err := c.render(ctx, base, conv.Request, plain[:last+1], false, share)
	if err != nil {
		return nil, nil, err
	}
	whole, err := c.render(ctx, base, conv.Request, plain, true, share)
	if err != nil {
		return nil, nil, err
	}
	if end, ok := endOf(old.tokens, whole.tokens); ok {
		if added, ok := join(conv.Known[len(conv.Known)-conv.Sampled:], whole.tokens, end, conv.Unsure); ok {
			return whole, slices.Concat(conv.Known, added), nil
		}
	}
	conv.Known = nil
	return c.prompt(ctx, base, conv, share)
}

// roleAssistant is the role of what a model said.
const roleAssistant = "assistant"

// withoutThoughts are messages as templates render them that leave all thoughts out. White space before the words goes with them, which some templates do.
func withoutThoughts(messages []Message) []Message {
	plain := slices.Clone(messages)
	for i := range plain {
		if plain[i].Role != roleAssistant {
			continue
		}
		plain[i].Thoughts = Thoughts{}
		if at := strings.LastIndex(plain[i].Content, events.EndOfThoughts); at >= 0 {
			plain[i].Content = plain[i].Content[at+len(events.EndOfThoughts):]
		}
		plain[i].Content = strings.TrimLeft(plain[i].Content, " \n")
	}
	return plain
}

// answers checks that an answer is one to the prompt, and puts the prompt's tokens into it.
func (r *Response) answers(prompt []int32, most int) error {
	if len(r.Choices) != 1 {
		return fmt.Errorf("%d choices instead of 1", len(r.Choices))
	}
	choice := &r.Choices[0]
	switch {
	case r.PromptTokenIDs != nil && !slices.Equal(r.PromptTokenIDs, prompt):
		return fmt.Errorf("%w: the server sampled behind another prompt than it was given: %d tokens instead of %d", ErrTokens, len(r.PromptTokenIDs), len(prompt))
	case choice.TokenIDs == nil:
		return fmt.Errorf("%w: the choice has no token_ids", ErrTokens)
	case len(choice.TokenIDs) > most:
		return fmt.Errorf("%w: %d tokens, and at most %d were asked for", ErrTokens, len(choice.TokenIDs), most)
	}
	for i, entry := range choice.Logprobs.Content[:min(len(choice.TokenIDs), len(choice.Logprobs.Content))] { // lists of other lengths are refused with the turn
		named := strconv.Itoa(int(choice.TokenIDs[i]))
		if id, says := strings.CutPrefix(entry.Token, "token_id:"); says && id != named || entry.TokenID != nil && *entry.TokenID != choice.TokenIDs[i] {
			return fmt.Errorf("%w: token %d is %s, and its log-probability is of another one", ErrTokens, i, named)
		}
	}
	r.PromptTokenIDs = prompt
	return nil
}

// parsed reports whether the server has read the message in what was sampled. One that was sampled without a token has none.
func (c *Choice) parsed() bool { return c.Message.Role != "" || len(c.TokenIDs) == 0 }

// derender has a server read the message in what it sampled before.
func (c *Client) derender(ctx context.Context, base string, chat Request, answer *Response, share *memory.Share) error {
	type choice struct {
		Index        int             `json:"index"`
		TokenIDs     []int32         `json:"token_ids"`
		FinishReason string          `json:"finish_reason"`
		StopReason   json.RawMessage `json:"stop_reason,omitempty"`
	}
	sampled := &answer.Choices[0]
	url := base + "/chat/completions/derender"
	body := map[string]any{
		"model": chat.Model, "chat_request": chat, "prompt_tokens": len(answer.PromptTokenIDs), "prompt_token_ids": answer.PromptTokenIDs,
		"generate_response": map[string]any{"prompt_token_ids": answer.PromptTokenIDs, "choices": []choice{{0, sampled.TokenIDs, sampled.FinishReason, sampled.StopReason}}},
	}
	var message Response
	if err := c.ask(ctx, url, body, &message, share); err != nil {
		return lacksTokens(err)
	}
	if len(message.Choices) != 1 || message.Choices[0].Message.Role == "" {
		return malformed(url, fmt.Errorf("%d choices, want 1 with a message", len(message.Choices)))
	}
	sampled.Message, sampled.FinishReason = message.Choices[0].Message, message.Choices[0].FinishReason
	return nil
}

// malformed is an answer that cannot be used.
func malformed(url string, err error) *Failure {
	return &Failure{Class: events.ClassBadResponse, Err: fmt.Errorf("answer of %s: %w", url, err)}
}

// lacksTokens says what a server lacks that refuses the paths of tokens.
func lacksTokens(err error) error {
	var f *Failure
	if !errors.As(err, &f) || f.Status != http.StatusForbidden && (f.Status != http.StatusNotFound || strings.Contains(f.Error(), "model")) {
		return err
	}
	f.Err = fmt.Errorf("%w. endpoint_api is tokens: start vLLM (0.32 or later) with --enable-scale-out (--tokens-only serves the path of tokens too, but without the "+
		"tokenizer that renders messages), or leave endpoint_api out of the run file", f.Err)
	return f
}
