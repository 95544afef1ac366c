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
//	POST /generate             input_ids; answers with output_ids and, in meta_info, log-probabilities, versions and what ended it. A stream's events have all of these so far, or with
//	                           --incremental-streaming-output what is new; completion_tokens tells which
//	POST /detokenize           answers with the text of tokens, of an answer that was sampled in parts
//	GET  /server_info          names the parsers of reasoning and of tool calls that the server was started with
//	POST /separate_reasoning   takes the thoughts out of a text
//	POST /parse_function_call  takes the tool calls out of a text
type sglangTurn struct {
	turn
	text    string          // of the last request's answer
	matched json.RawMessage // the stop token or the stop text that ended it
	label   version         // of the last event of a stream
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
		FinishReason     sglangEnd  `json:"finish_reason"`
		PromptTokens     tokenCount `json:"prompt_tokens"`
		CompletionTokens tokenCount `json:"completion_tokens"`
	} `json:"meta_info"`
	all json.RawMessage
}

// sglangEnd is why an answer ended. A status says that the server failed.
type sglangEnd struct {
	word    finishWord
	Status  int             `json:"status_code"`
	Message string          `json:"message"`
	Matched json.RawMessage `json:"matched"`
}

// UnmarshalJSON has no error: the word says what cannot be read.
func (e *sglangEnd) UnmarshalJSON(data []byte) error {
	type plain sglangEnd
	_ = json.Unmarshal(data, (*plain)(e))
	return e.word.UnmarshalJSON(data)
}

// UnmarshalJSON keeps what a chat's choice has under the same name.
func (g *generated) UnmarshalJSON(data []byte) error {
	type plain generated
	g.all = slices.Clone(data)
	return json.Unmarshal(data, (*plain)(g))
}

// samplingParams are the fields of a chat that /generate takes among its sampling_params, by their
// names there: it drops what it does not know.
var samplingParams = map[string]string{
	"min_tokens": "min_new_tokens", "min_new_tokens": "min_new_tokens", "ignore_eos": "ignore_eos",
	"logit_bias": "logit_bias", "regex": "regex", "ebnf": "ebnf",
	"json_schema": "json_schema", "structural_tag": "structural_tag", "custom_params": "custom_params",
	"stop_token_ids": "stop_token_ids", "stop_regex": "stop_regex",
	"no_stop_trim": "no_stop_trim",
}

func (t *sglangTurn) sample(ctx context.Context, prompt []int32, most, from int) (*Response, error) {
	s := t.request.Sample
	params := map[string]any{
		"max_new_tokens": most, "temperature": s.Temperature, "skip_special_tokens": false,
		"spaces_between_special_tokens": false,
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
	for name, value := range map[string]any{"input_ids": prompt, "sampling_params": params, "return_logprob": true,
		"logprob_start_len": -1, "stream": false} {
		fields[name] = value
	}
	// as in a chat, where the model's name has the adapter
	if _, adapter, found := strings.Cut(t.request.Model, ":"); found {
		fields["lora_path"] = adapter
	}
	if from >= 0 {
		fields["return_routed_experts"], fields["routed_experts_start_len"] = true, from
	}
	if want := t.request.Columns; want != nil {
		fields["top_logprobs_num"], fields["return_sampling_mask"] = want.TopLogprobs, want.SamplingMask
	}
	url := t.root + "/generate"
	var made generated
	if t.recorder != nil {
		fields["stream"], params["stream_interval"] = true, min(pieceTokens, max(leastInterval, most/mostEvents))
		t.text, t.label = "", version{}
		s := streamed{most: most, prompt: prompt, counted: true, repeats: true, instead: &made}
		s.part = func(read func(any) *Failure) (*Response, error) { return t.part(ctx, url, &s, read) }
		again, err := t.stream(ctx, url, fields, &s)
		switch {
		case err == nil && s.came:
			return &s.whole, nil
		case err == nil:
			return t.whole(made)
		case !again:
			return nil, t.lacks(err, url)
		}
		fields["stream"] = false
		delete(params, "stream_interval")
	}
	if err := t.native(ctx, url, fields, &made); err != nil {
		return nil, err
	}
	return t.whole(made)
}

// whole takes an answer that came as a whole.
func (t *sglangTurn) whole(made generated) (*Response, error) {
	t.text, t.matched = made.Text, made.MetaInfo.FinishReason.Matched
	return t.response(made)
}

// A stream has an event for so many tokens: no more events than it takes to lose little, as each
// may repeat the whole answer so far. Longer answers than mostEvents pieces have an event for each
// piece, so that no death costs more than that. The price is that what is sent grows with the
// square of the answer's length: of 32,768 tokens 60 MB are sent, and of 131,072 1 GB, where 64
// events would have 250 MB.
const (
	leastInterval = 16
	mostEvents    = 64
)

// part reads an event of a stream.
func (t *sglangTurn) part(ctx context.Context, url string, s *streamed,
	read func(into any) *Failure) (*Response, error) {
	var made generated
	if failure := read(&made); failure != nil {
		return nil, failure
	}
	end := made.MetaInfo.FinishReason
	if end.Status >= http.StatusBadRequest {
		body, err := Encode(map[string]any{"error": map[string]any{"message": end.Message, "code": end.Status}})
		if err != nil {
			return nil, err
		}
		return nil, refusedAs(ctx, end.Status, fmt.Sprintf("%s ended its stream with an error", url), body, t.APIKey)
	}
	t.matched = end.Matched
	r, err := t.response(made)
	if err != nil {
		return nil, err
	}
	choice := &r.Choices[0]
	triples, told := choice.MetaInfo.OutputTokenLogprobs, len(s.soFar.ids)
	switch count := int(made.MetaInfo.CompletionTokens); {
	case len(triples) == count && told <= count: // all so far
		for i, id := range s.soFar.ids {
			if triples[i].id != id {
				return nil, fmt.Errorf("%w: token %d of the stream was %d, and is %d", ErrTokens, i, id, triples[i].id)
			}
		}
		choice.MetaInfo.OutputTokenLogprobs, t.text = triples[told:], made.Text
	case told+len(triples) == count:
		t.text += made.Text
	case r.Aborted(): // it repeats some, or lacks some
		choice.MetaInfo.OutputTokenLogprobs = []sampledToken{}
	default:
		return nil, fmt.Errorf("%w: the stream has had %d tokens, and its next event %d, of which the server counts %d",
			ErrTokens, told, len(triples), count)
	}
	choice.TokenIDs, choice.WeightVersions = nil, choice.MetaInfo.WeightVersions
	before, label := t.label, &choice.MetaInfo.WeightVersion
	if t.label = *label; told > 0 && *label != before { // the event's tokens may be of both
		*label = version{}
	}
	s.text = len(t.text)
	return r, nil
}

// response is the answer in the form of a chat's.
func (t *sglangTurn) response(made generated) (*Response, error) {
	var choice Choice
	if err := json.Unmarshal(made.all, &struct {
		MetaInfo any `json:"meta_info"`
	}{&choice.MetaInfo}); err != nil {
		return nil, malformed(t.root+"/generate", err)
	}
	choice.FinishReason = made.MetaInfo.FinishReason.word
	choice.TokenIDs = []int32{}
	for _, sampled := range choice.MetaInfo.OutputTokenLogprobs {
		choice.TokenIDs = append(choice.TokenIDs, sampled.id)
	}
	// Ids are there twice. Some versions leave out of one list what stopped the answer, and one
	// that is given up names its last token alone in a stream.
	if n := len(made.IDs); n > len(choice.TokenIDs) ||
		!slices.Equal(made.IDs, choice.TokenIDs[:n]) && choice.FinishReason != "abort" {
		return nil, malformed(t.root+"/generate", fmt.Errorf(
			"%w: output_ids and meta_info.output_token_logprobs name other tokens", ErrTokens))
	}
	r := &Response{Choices: choices{choice}}
	r.Usage.PromptTokens, r.Usage.CompletionTokens = made.MetaInfo.PromptTokens, made.MetaInfo.CompletionTokens
	return r, nil
}

// openThoughts begins thoughts for SGLang's parsers. Templates may have put it into the prompt, so
// that the sample lacks it.
const openThoughts = "<think>"

// read has the parsers that the server was started with read the message; what it has none for
// stays in the text, as in a chat.
func (t *sglangTurn) read(ctx context.Context, answer *Response) error {
	choice := &answer.Choices[0]
	if answer.parts > 0 {
		if err := t.join(ctx, choice); err != nil {
			return err
		}
	}
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
		if err := t.native(ctx, t.root+"/separate_reasoning",
			map[string]any{"text": text, "reasoning_parser": started.Reasoning}, &parts); err != nil {
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
		choice.Message.ToolCalls = append(choice.Message.ToolCalls,
			ToolCall{Type: "function", Function: Function{Name: c.Name, Arguments: c.Parameters}})
	}
	return nil
}

// join reads the text of an answer that was sampled in parts, which may meet within a character. It
// ends before the stop token or the stop text, as a whole one's does.
func (t *sglangTurn) join(ctx context.Context, choice *Choice) error {
	ids, stop := choice.TokenIDs, ""
	if json.Unmarshal(t.matched, &stop) != nil && len(t.matched) > 0 && len(ids) > 0 { // it is the id of a token
		ids = ids[:len(ids)-1]
	}
	var said struct {
		Text string `json:"text"`
	}
	err := t.native(ctx, t.root+"/detokenize", map[string]any{"model": t.request.Model, "tokens": ids,
		"skip_special_tokens": false}, &said)
	t.text = said.Text
	if at := strings.LastIndex(t.text, stop); stop != "" && at >= 0 {
		t.text = t.text[:at]
	}
	return err
}

// native asks one of the server's own paths.
func (t *sglangTurn) native(ctx context.Context, url string, request, answer any) error {
	return t.lacks(t.post(ctx, url, request, answer), url)
}

// lacks says what a server needs that refuses these paths.
func (t *sglangTurn) lacks(err error, url string) error {
	var f *Failure
	if t.chats || !errors.As(err, &f) ||
		f.Status != http.StatusNotFound &&
			!(f.Status == http.StatusBadRequest && strings.HasSuffix(url, "/tokenize") && f.Overflow == nil) {
		return err
	}
	f.Err = fmt.Errorf("%w. endpoint_api is tokens: SGLang must render messages at /v1/tokenize (0.5.23 or later, with the model's own chat template and no --chat-template of another kind); "+
		"else leave endpoint_api out of the run file", f.Err)
	return f
}
