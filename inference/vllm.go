package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// vllmTurn is a turn at vLLM 0.33:
//
//	POST /v1/chat/completions/render    a chat request; answers with the request for the next one: token_ids, sampling_params, parse_context
//	POST /inference/v1/generate         answers with choices[].token_ids and logprobs, and in output_mode "derender" with the message; streams them in output_mode "tokens"
//	POST /v1/chat/completions/derender  answers with the message: for 0.32, whose rendering has no parse_context and whose generate refuses output_mode "derender"
//
// Versions differ in how an entry of logprobs names its token: token_id, or token
// "token_id:N", or its text.
type vllmTurn struct {
	turn
	asks *rendering // the last rendering that asks for an answer
}

// renderPath is where a server renders messages as tokens.
const renderPath = "/chat/completions/render"

func (t *vllmTurn) render(ctx context.Context, messages []Message, prompts bool) ([]int32, error) {
	const cuts = "truncate_prompt_tokens" // it may leave room for the answer, of which a rendering knows nothing
	if _, cut := t.request.Extra[cuts]; cut && t.chats {
		return nil, uncounted(cuts)
	}
	request := t.request
	request.Messages, request.MaxTokens = messages, 1 // a rendering for a longer answer could be refused
	if !t.chats {
		request.AddGenerationPrompt = &prompts
	}
	var answer rendering
	if err := t.post(ctx, t.base+renderPath, request, &answer); err != nil {
		if !t.chats {
			err = lacksTokens(err)
		}
		return nil, err
	}
	if prompts {
		t.asks = &answer
	}
	return rendered(t.base+renderPath, answer.tokens)
}

func (t *vllmTurn) end(ctx context.Context, messages []Message, whole, _ []int32) (int, bool, error) {
	return endByRendering(ctx, t, messages, whole)
}

func (t *vllmTurn) sample(ctx context.Context, prompt []int32, most, from int) (*Response, error) {
	url := t.root + "/inference/v1/generate"
	if t.recorder != nil {
		if err := t.asks.ask(prompt, most, -1, t.request.Seed, true); err != nil {
			return nil, malformed(t.base+renderPath, err)
		}
		s := streamed{most: most, prompt: prompt, part: plainPart}
		s.instead = &s.whole
		if again, err := t.stream(ctx, url, t.asks.fields, &s); !again {
			return &s.whole, lacksTokens(err)
		}
	}
	if err := t.asks.ask(prompt, most, from, t.request.Seed, false); err != nil {
		return nil, malformed(t.base+renderPath, err)
	}
	var answer Response
	if err := t.post(ctx, url, t.asks.fields, &answer); err != nil {
		return nil, lacksTokens(err)
	}
	return &answer, nil
}

// plainPart reads an event that has a choice of what there is more.
func plainPart(read func(into any) *Failure) (*Response, error) {
	var part Response
	if failure := read(&part); failure != nil {
		return nil, failure
	}
	return &part, nil
}

// rendering is a server's rendering of a chat request: the request for generate, which is passed on
// as it is but for what Rondo decides.
type rendering struct {
	tokens tokenIDs
	fields map[string]json.RawMessage
}

// UnmarshalJSON keeps all fields but the tokens as they are.
func (r *rendering) UnmarshalJSON(data []byte) error {
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

// expertsStart is the sampling parameter that leaves out the experts of the
// first tokens of a prompt.
const expertsStart = "routed_experts_prompt_start"

// ask makes the request of a prompt for an answer of most tokens, and for the experts from one of
// its tokens on, if the server lists them. The message in a stream is read when all of it is there.
func (r *rendering) ask(prompt []int32, most, from int, seed *int64, stream bool) error {
	var params map[string]json.RawMessage
	if err := json.Unmarshal(r.fields["sampling_params"], &params); err != nil || params == nil {
		return errors.New("the rendering has no sampling_params")
	}
	delete(params, expertsStart)
	if from > 0 {
		params[expertsStart] = json.RawMessage(strconv.Itoa(from))
	}
	if seed != nil {
		params["seed"] = json.RawMessage(strconv.FormatInt(*seed, 10))
	}
	mode := "tokens"
	if _, parses := r.fields["parse_context"]; parses && !stream {
		mode = "derender"
	}
	for _, set := range []struct {
		in    map[string]json.RawMessage
		name  string
		value any
	}{
		{params, "max_tokens", most}, {r.fields, "sampling_params", params}, {r.fields, "token_ids", prompt},
		{r.fields, "output_mode", mode}, {r.fields, "return_token_ids", true}, {r.fields, "stream", stream},
	} {
		value, err := Encode(set.value)
		if err != nil {
			return err
		}
		set.in[set.name] = value
	}
	return nil
}

// parsed reports whether the server has read the message in what was sampled. One that was sampled
// without a token has none.
func (c *Choice) parsed() bool { return c.Message.Role != "" || len(c.TokenIDs) == 0 }

// read has the server read the message in what it sampled before.
func (t *vllmTurn) read(ctx context.Context, answer *Response) error {
	if answer.Choices[0].parsed() {
		return nil
	}
	chat := t.request
	type choice struct {
		Index        int             `json:"index"`
		TokenIDs     []int32         `json:"token_ids"`
		FinishReason finishWord      `json:"finish_reason"`
		StopReason   json.RawMessage `json:"stop_reason,omitempty"`
	}
	sampled := &answer.Choices[0]
	url := t.base + "/chat/completions/derender"
	body := map[string]any{
		"model": chat.Model, "chat_request": chat, "prompt_tokens": len(answer.PromptTokenIDs),
		"prompt_token_ids": answer.PromptTokenIDs,
		"generate_response": map[string]any{"prompt_token_ids": answer.PromptTokenIDs,
			"choices": []choice{{0, sampled.TokenIDs, sampled.FinishReason, sampled.StopReason}}},
	}
	var message Response
	if err := t.post(ctx, url, body, &message); err != nil {
		return lacksTokens(err)
	}
	if len(message.Choices) != 1 || message.Choices[0].Message.Role == "" {
		return malformed(url, fmt.Errorf("%d choices, want 1 with a message", len(message.Choices)))
	}
	sampled.Message = message.Choices[0].Message
	return nil
}

// lacksPath reports whether a server has no such path, or keeps it shut. That it has no
// such model is another thing.
func lacksPath(err error) bool {
	var f *Failure
	if !errors.As(err, &f) || f.Permanent {
		return false
	}
	switch f.Status {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return f.Status == http.StatusNotFound && !strings.Contains(f.said, "model")
}

// lacksTokens says what a server lacks that refuses the paths of tokens.
func lacksTokens(err error) error {
	var f *Failure
	if !lacksPath(err) || !errors.As(err, &f) {
		return err
	}
	f.Err = fmt.Errorf("%w. endpoint_api is tokens: start vLLM (0.32 or later) with --enable-scale-out (--tokens-only serves the path of tokens too, but without the "+
		"tokenizer that renders messages), or leave endpoint_api out of the run file", f.Err)
	return f
}
