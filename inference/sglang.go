package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// sglangTurn is a turn at SGLang 0.5.23:
//
//	POST /v1/tokenize          a chat request; answers with its rendering as tokens, which add_generation_prompt ends
//	POST /generate             input_ids; answers with output_ids and, in meta_info, log-probabilities, versions and what ended it
//	GET  /server_info          names the parsers of reasoning and of tool calls that the server was started with
//	POST /separate_reasoning   takes the thoughts out of a text
//	POST /parse_function_call  takes the tool calls out of a text
type sglangTurn struct {
	turn
	text string
}

func (t *sglangTurn) render(ctx context.Context, messages []Message, prompts bool) ([]int32, error) {
	var answer struct {
		Tokens tokenIDs `json:"tokens"`
	}
	chat, err := t.chatOf(messages, prompts)
	if err == nil {
		err = t.native(ctx, t.base+"/tokenize", chat, &answer)
	}
	if err != nil {
		return nil, err
	}
	return rendered(t.base+"/tokenize", answer.Tokens)
}

func (t *sglangTurn) end(ctx context.Context, messages []Message, whole, _ []int32) (int, bool, error) {
	return endByRendering(ctx, t, messages, whole)
}

// generated is an answer of /generate.
type generated struct {
	Text     string   `json:"text"`
	IDs      tokenIDs `json:"output_ids"`
	MetaInfo struct {
		FinishReason     finishWord `json:"finish_reason"`
		PromptTokens     tokenCount `json:"prompt_tokens"`
		CompletionTokens tokenCount `json:"completion_tokens"`
	} `json:"meta_info"`
	all json.RawMessage
}

// UnmarshalJSON keeps what a chat's choice has under the same name.
func (g *generated) UnmarshalJSON(data []byte) error {
	type plain generated
	g.all = slices.Clone(data)
	return json.Unmarshal(data, (*plain)(g))
}

// samplingParams are the fields of a chat that /generate takes among its sampling_params, by their names there: it drops what it does not know.
var samplingParams = map[string]string{
	"min_tokens": "min_new_tokens", "min_new_tokens": "min_new_tokens", "ignore_eos": "ignore_eos", "logit_bias": "logit_bias", "regex": "regex", "ebnf": "ebnf",
	"json_schema": "json_schema", "structural_tag": "structural_tag", "custom_params": "custom_params", "stop_token_ids": "stop_token_ids", "stop_regex": "stop_regex",
	"no_stop_trim": "no_stop_trim",
}

func (t *sglangTurn) sample(ctx context.Context, prompt []int32, most, from int) (*Response, error) {
	s := t.request.Sample
	params := map[string]any{
		"max_new_tokens": most, "temperature": s.Temperature, "skip_special_tokens": false, "spaces_between_special_tokens": false,
	}
	set(params, "top_p", s.TopP)
	set(params, "top_k", s.TopK)
	set(params, "min_p", s.MinP)
	set(params, "repetition_penalty", s.RepetitionPenalty)
	set(params, "presence_penalty", s.PresencePenalty)
	set(params, "frequency_penalty", s.FrequencyPenalty)
	set(params, "sampling_seed", t.request.Seed)
	if s.Stop != nil {
		params["stop"] = s.Stop
	}
	fields := map[string]any{}
	for name, value := range t.request.Extra {
		if own, is := samplingParams[name]; is {
			params[own] = value
		} else {
			fields[name] = value
		}
	}
	for name, value := range map[string]any{"input_ids": prompt, "sampling_params": params, "return_logprob": true, "logprob_start_len": -1, "stream": false} {
		fields[name] = value
	}
	if _, adapter, found := strings.Cut(t.request.Model, ":"); found { // as in a chat, where the model's name has the adapter
		fields["lora_path"] = adapter
	}
	if from >= 0 {
		fields["return_routed_experts"], fields["routed_experts_start_len"] = true, from
	}
	if want := t.request.Columns; want != nil {
		fields["top_logprobs_num"], fields["return_sampling_mask"] = want.TopLogprobs, want.SamplingMask
	}
	var made generated
	if err := t.native(ctx, t.root+"/generate", fields, &made); err != nil {
		return nil, err
	}
	return t.response(made)
}

// response is the answer in the form of a chat's.
func (t *sglangTurn) response(made generated) (*Response, error) {
	var choice Choice
	if err := json.Unmarshal(made.all, &struct {
		MetaInfo any `json:"meta_info"`
	}{&choice.MetaInfo}); err != nil {
		return nil, malformed(t.root+"/generate", err)
	}
	choice.FinishReason = made.MetaInfo.FinishReason
	choice.TokenIDs = []int32{}
	for _, sampled := range choice.MetaInfo.OutputTokenLogprobs {
		choice.TokenIDs = append(choice.TokenIDs, sampled.id)
	}
	// Ids are there twice. Some versions leave out of one list what stopped the answer.
	if n := len(made.IDs); n > len(choice.TokenIDs) || !slices.Equal(made.IDs, choice.TokenIDs[:n]) {
		return nil, malformed(t.root+"/generate", fmt.Errorf("%w: output_ids and meta_info.output_token_logprobs name other tokens", ErrTokens))
	}
	r := &Response{Choices: choices{choice}}
	r.Usage.PromptTokens, r.Usage.CompletionTokens = made.MetaInfo.PromptTokens, made.MetaInfo.CompletionTokens
	t.text += made.Text // of an answer that was aborted before, the rest
	return r, nil
}

// openThoughts begins thoughts for SGLang's parsers. Templates may have put it into the prompt, so that the sample lacks it.
const openThoughts = "<think>"

// read has the parsers that the server was started with read the message; what it has none for stays in the text, as in a chat.
func (t *sglangTurn) read(ctx context.Context, answer *Response) error {
	choice := &answer.Choices[0]
	choice.Message.Role, choice.Message.Content = roleAssistant, t.text
	var started struct {
		Reasoning string `json:"reasoning_parser"`
		Tools     string `json:"tool_call_parser"`
	}
	if err := t.get(ctx, t.root+"/server_info", &started); err != nil {
		return err
	}
	if started.Reasoning != "" && t.text != "" {
		text := t.text
		if strings.Contains(text, events.EndOfThoughts) && !strings.Contains(text, openThoughts) {
			text = openThoughts + text
		}
		var parts struct {
			Reasoning string `json:"reasoning_text"`
			Text      string `json:"text"`
		}
		if err := t.native(ctx, t.root+"/separate_reasoning", map[string]any{"text": text, "reasoning_parser": started.Reasoning}, &parts); err != nil {
			return err
		}
		choice.Message.ReasoningContent, choice.Message.Content = parts.Reasoning, parts.Text
	}
	if started.Tools == "" || len(t.request.Tools) == 0 || choice.Message.Content == "" {
		return nil
	}
	var parts struct {
		Text  string `json:"normal_text"`
		Calls []struct {
			Name       string    `json:"name"`
			Parameters Arguments `json:"parameters"`
		} `json:"calls"`
	}
	body := map[string]any{"text": choice.Message.Content, "tools": t.request.Tools, "tool_call_parser": started.Tools}
	if err := t.native(ctx, t.root+"/parse_function_call", body, &parts); err != nil {
		return err
	}
	if len(parts.Calls) == 0 {
		return nil
	}
	choice.Message.Content = parts.Text
	for _, c := range parts.Calls[:min(len(parts.Calls), MaxToolCalls+1)] {
		choice.Message.ToolCalls = append(choice.Message.ToolCalls, ToolCall{Type: "function", Function: Function{Name: c.Name, Arguments: c.Parameters}})
	}
	return nil
}

// native asks one of the server's own paths, and says what it needs where it refuses them.
func (t *sglangTurn) native(ctx context.Context, url string, request, answer any) error {
	err := t.post(ctx, url, request, answer)
	var f *Failure
	if t.chats || !errors.As(err, &f) || f.Status != http.StatusNotFound && !(f.Status == http.StatusBadRequest && strings.HasSuffix(url, "/tokenize") && f.Overflow == nil) {
		return err
	}
	f.Err = fmt.Errorf("%w. endpoint_api is tokens: SGLang must render messages at /v1/tokenize (0.5.23 or later, with the model's own chat template and no --chat-template of another kind); "+
		"else leave endpoint_api out of the run file", f.Err)
	return f
}
