package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
)

// llamaTurn is a turn at llama.cpp's server, as llama-cpp-python 0.3.36 ships it:
//
//	POST /apply-template       a chat request; answers with the prompt as text
//	POST /tokenize             answers with the tokens of a text
//	POST /completion           a prompt of tokens; answers with tokens, completion_probabilities and what ended it, and reads no message. A stream has an event for each token, but none
//	                           for those that end within a character, which tokens_predicted counts
//	POST /detokenize           answers with the text of tokens, special ones too
//	POST /v1/chat/completions  goes on with a last message of the assistant's, which it reads with the parser of the model's template
type llamaTurn struct {
	turn
	made completion // what the last request was answered
	said llamaStream
}

// llamaStream is what a stream has had.
type llamaStream struct {
	ids        tokenIDs
	count      int  // tokens, with those that the stream has left out
	unmeasured bool // some have no log-probability
	tailless   bool // the last one is among those that it has left out
	text       []byte
	silent     []silentToken
}

// silentToken is a special token, whose text stands nowhere in a stream.
type silentToken struct {
	at int // in the text
	id int32
}

// lacking reports whether the stream has left out tokens.
func (s *llamaStream) lacking() bool { return s.count > len(s.ids) }

func (t *llamaTurn) render(ctx context.Context, messages []Message, prompts bool) ([]int32, error) {
	text, err := t.text(ctx, messages, prompts, nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Tokens tokenIDs `json:"tokens"`
	}
	// As the server cuts the prompts of chats: the template's text lacks the token
	// that begins every prompt.
	if err := t.native(ctx, "/tokenize", map[string]any{"content": text, "add_special": true, "parse_special": true},
		&answer); err != nil {
		return nil, err
	}
	return rendered(t.root+"/tokenize", answer.Tokens)
}

// text renders messages as text. continues says in which field the last one goes on.
func (t *llamaTurn) text(ctx context.Context, messages []Message, prompts bool, continues any) (string, error) {
	var answer struct {
		Prompt string `json:"prompt"`
	}
	err := t.native(ctx, "/apply-template", t.chat(messages, prompts, continues), &answer)
	return answer.Prompt, err
}

// chat is a chat request of some messages.
func (t *llamaTurn) chat(messages []Message, prompts bool, continues any) Request {
	request := t.request
	request.Messages, request.MaxTokens, request.Stop = messages, 1, nil
	if !t.chats {
		request.AddGenerationPrompt = &prompts
	}
	if continues != nil {
		request.Extra = map[string]any{"continue_final_message": continues}
	}
	return request
}

// end finds the end of the last answer by its stop token: the server would go on with
// an answer that is rendered last, instead of ending it. The conversation before the
// answer says where to look.
func (t *llamaTurn) end(ctx context.Context, messages []Message, whole, sample []int32) (int, bool, error) {
	before, err := t.render(ctx, messages[:len(messages)-1], true)
	if err != nil {
		return 0, false, err
	}
	begin, ok := endOf(before, whole, emptyThoughts) // it ends with what opens an answer, and perhaps its thoughts
	if !ok {
		return 0, false, nil
	}
	stop := slices.Index(whole[begin:], sample[len(sample)-1])
	if stop < 0 {
		return 0, false, nil
	}
	return begin + stop + 1, true, nil
}

// neutral are the settings of llama.cpp that no run can set, as they change nothing: an operator
// may have set others for the server.
var neutral = map[string]any{
	"typical_p": 1, "top_n_sigma": -1, "xtc_probability": 0, "dynatemp_range": 0, "dry_multiplier": 0, "mirostat": 0,
	"adaptive_target": -1, "ignore_eos": false,
}

// llamaFields are the fields by which /completion samples from another distribution.
var llamaFields = []string{
	"logit_bias", "ignore_eos", "grammar", "json_schema", "typical_p", "top_n_sigma", "xtc_probability",
	"dry_multiplier", "mirostat", "dynatemp_range", "dynatemp_exponent",
	"adaptive_target", "samplers",
}

// An answer of /completion ends with a stop token or a stop text.
const (
	stopEOS  = "eos"
	stopWord = "word"
)

// completion is an answer of /completion.
type completion struct {
	Tokens    tokenIDs   `json:"tokens"`
	Content   string     `json:"content"`
	Evaluated tokenCount `json:"tokens_evaluated"`
	Predicted tokenCount `json:"tokens_predicted"`
	StopType  finishWord `json:"stop_type"`
	Stop      bool       `json:"stop"` // of the last event of a stream
	Sampled   []struct {
		ID   int32    `json:"id"`
		Prob *float64 `json:"prob"`
		Top  []struct {
			ID   *int32   `json:"id"`
			Prob *float64 `json:"prob"`
		} `json:"top_probs"`
	} `json:"completion_probabilities"`
}

func (t *llamaTurn) sample(ctx context.Context, prompt []int32, most, _ int) (*Response, error) {
	fields := map[string]any{}
	for name, value := range neutral {
		fields[name] = value
	}
	for name, value := range t.request.Extra {
		fields[name] = value
	}
	s := t.request.Sample
	for name, value := range map[string]any{
		"model": t.request.Model, "prompt": prompt, "n_predict": most, "return_tokens": true,
		"n_probs": max(1, t.request.TopLogprobs), "post_sampling_probs": true,
		"cache_prompt": true, "stream": false,
		"temperature": s.Temperature, "stop": s.Stop,
		// an answer that comes as a whole has these alone, and so has the last event of a stream
		"response_fields": []string{"tokens", "content", "tokens_evaluated", "tokens_predicted", "stop", "stop_type",
			"completion_probabilities"},
	} {
		fields[name] = value
	}
	set(fields, "top_p", s.TopP)
	set(fields, "min_p", s.MinP)
	set(fields, "repeat_penalty", s.RepetitionPenalty)
	set(fields, "presence_penalty", s.PresencePenalty)
	set(fields, "frequency_penalty", s.FrequencyPenalty)
	set(fields, "seed", t.request.Seed)
	if s.TopK != nil {
		fields["top_k"] = max(0, *s.TopK) // 0 is all here
	}
	if s.Stop == nil {
		delete(fields, "stop")
	}
	t.made, t.said = completion{}, llamaStream{}
	if t.recorder != nil {
		fields["stream"] = true
		s := streamed{most: most, prompt: prompt, counted: true, instead: &t.made}
		s.part = func(read func(any) *Failure) (*Response, error) { return t.part(&s, read) }
		again, err := t.stream(ctx, t.root+"/completion", fields, &s)
		switch {
		case err == nil && s.came:
			if t.said.unmeasured {
				s.whole.Choices[0].TokenIDs, s.whole.Choices[0].logprobs, s.whole.unmeasured = slices.Concat(tokenIDs{},
					t.said.ids), nil, true
			}
			t.made.Content = string(t.said.text)
			return &s.whole, nil
		case err == nil:
			return t.made.response(), nil
		case !again:
			return nil, t.lacks(err)
		}
		fields["stream"] = false
	}
	if err := t.native(ctx, "/completion", fields, &t.made); err != nil {
		return nil, err
	}
	return t.made.response(), nil
}

// part reads an event of a stream. From a token on that has no log-probability, or that the stream
// has left out, none is told: the turn is text alone. The answer goes on all the same, as one that
// is sampled anew would have such tokens less often.
func (t *llamaTurn) part(s *streamed, read func(into any) *Failure) (*Response, error) {
	var made completion
	if failure := read(&made); failure != nil {
		return nil, failure
	}
	told := &t.said
	switch least := told.count + len(made.Tokens); {
	case int(made.Predicted) < least:
		return nil, fmt.Errorf("%w: the stream has had %d tokens, and the server counts %d", ErrTokens, least,
			made.Predicted)
	case int(made.Predicted) > s.most: // so what is kept of tokens that are not told is bounded, too
		return nil, fmt.Errorf("%w: the server counts %d tokens, more than the %d tokens that were asked for",
			ErrTokens, made.Predicted, s.most)
	}
	ends := made.Stop || made.StopType != ""
	told.tailless = ends && int(made.Predicted) > told.count+len(made.Tokens)
	told.count = int(made.Predicted)
	told.ids = append(told.ids, made.Tokens...)
	if made.Content == "" {
		for _, id := range made.Tokens {
			told.silent = append(told.silent, silentToken{len(told.text), id})
		}
	}
	told.text = append(told.text, made.Content...)
	s.text = cap(told.text)
	t.made = completion{StopType: made.StopType}
	r := made.response()
	measured := len(made.Tokens) == len(r.Choices[0].Logprobs.Content)
	if told.unmeasured = told.unmeasured || told.lacking() || !measured; told.unmeasured {
		r.Choices[0].TokenIDs, r.Choices[0].Logprobs.Content = nil, nil
	}
	switch { // a stop token has an event of its own, before the one that says that it is the end
	case made.Content != "":
		s.soFar.held = 0
	case len(made.Tokens) > 0:
		s.soFar.held = len(r.Choices[0].TokenIDs)
	}
	return r, nil
}

// set sets a field to a value that there is.
func set[T any](fields map[string]any, name string, value *T) {
	if value != nil {
		fields[name] = *value
	}
}

// response is the answer in the form of a chat's.
func (m completion) response() *Response {
	r := &Response{Choices: choices{{TokenIDs: m.Tokens, FinishReason: m.StopType}}}
	r.Usage.PromptTokens, r.Usage.CompletionTokens = m.Evaluated, m.Predicted
	choice := &r.Choices[0]
	if m.StopType == stopWord || len(m.Sampled) != len(m.Tokens) {
		return r // the list ends before the text that stopped it, and lacks tokens that end within a character
	}
	for i, e := range m.Sampled {
		// one that a draft model has proposed has no probability, but says 1
		if e.ID != m.Tokens[i] || e.Prob == nil || len(e.Top) == 0 {
			choice.Logprobs.Content = nil
			return r
		}
		id := e.ID
		entry := sampledEntry{TokenID: &id, Logprob: logOf(*e.Prob)}
		for _, other := range e.Top {
			if other.Prob != nil && *other.Prob > 0 {
				entry.Top = append(entry.Top, topLogprob{ID: other.ID, Logprob: logOf(*other.Prob)})
			}
		}
		choice.Logprobs.Content = append(choice.Logprobs.Content, entry)
	}
	return r
}

// logOf is a probability's logarithm; that of none is no log-probability.
func logOf(p float64) *logprob {
	l := logprob(math.Log(p))
	return &l
}

// mark stands for a message in a rendering that shows what is put before it or behind it.
const mark = "\u2402rondo\u2403"

// read has the server go on with the sample as the beginning of an answer, and takes the message
// that it reads there. The model is made to add no more than a stop token. What was cut, or ended
// with a stop text, is text alone.
func (t *llamaTurn) read(ctx context.Context, answer *Response) error {
	choice := &answer.Choices[0]
	choice.Message.Role, choice.Message.Content = roleAssistant, t.made.Content
	last := len(choice.TokenIDs) - 1
	ended := t.made.StopType == stopEOS && !t.said.tailless
	if last < 0 || !ended && answer.parts == 0 {
		return nil
	}
	ids := choice.TokenIDs
	if ended {
		ids = ids[:last]
	}
	text, err := t.whole(ctx, ids, answer.recorded)
	if err != nil {
		return err
	}
	choice.Message.Content = text
	if !ended || strings.TrimSpace(text) == "" {
		return nil
	}
	said, field, err := t.begun(ctx, text)
	if err != nil {
		return err
	}
	request := t.chat(append(question(), said), false, field)
	request.Extra["logit_bias"], request.Extra["cache_prompt"] = []any{[]any{choice.TokenIDs[last], 1e6}}, true
	request.Sample = Sample{MaxTokens: 1, TemplateKwargs: t.request.TemplateKwargs}
	request.Logprobs, request.TopLogprobs = false, 0
	var message Response
	err = t.post(ctx, t.base+"/chat/completions", withoutLogprobs{request}, &message)
	var f *Failure
	switch {
	// it is not what the template's parser expects: a chat would have failed
	case errors.As(err, &f) && f.Status == http.StatusInternalServerError:
		return nil
	case err != nil:
		return t.lacks(err)
	case len(message.Choices) != 1:
		return malformed(t.base+"/chat/completions", fmt.Errorf("%d choices instead of 1", len(message.Choices)))
	}
	choice.Message = message.Choices[0].Message
	choice.Message.Role = roleAssistant
	return nil
}

// whole is the text of an answer's tokens, the first so many of which were recorded before, with
// the special ones. Where the stream has left out tokens, it is put together from what the stream
// said, and the special tokens apart.
func (t *llamaTurn) whole(ctx context.Context, ids []int32, recorded int) (string, error) {
	if !t.said.lacking() {
		return t.detokenized(ctx, ids)
	}
	begun, err := t.detokenized(ctx, ids[:min(recorded, len(ids))])
	text, at, texts := []byte(begun), 0, map[int32]string{}
	for i, silent := range t.said.silent {
		if i == len(t.said.silent)-1 && len(ids)-recorded < len(t.said.ids) {
			break // it is the stop token
		}
		special, known := texts[silent.id]
		if !known && len(texts) < mostSilent && err == nil {
			special, err = t.detokenized(ctx, []int32{silent.id})
			texts[silent.id] = special
		}
		text = append(append(text, t.said.text[at:silent.at]...), special...)
		at = silent.at
	}
	return string(append(text, t.said.text[at:]...)), err
}

// mostSilent is how many special tokens a model has in one answer at most.
const mostSilent = 64

// detokenized is the text of tokens, with the special ones, which the text of /completion lacks.
func (t *llamaTurn) detokenized(ctx context.Context, ids []int32) (string, error) {
	if len(ids) == 0 {
		return "", nil
	}
	var answer struct {
		Content string `json:"content"`
	}
	err := t.native(ctx, "/detokenize", map[string]any{"tokens": ids}, &answer)
	return answer.Content, err
}

// withoutLogprobs is a request that does not name them: the server refuses top_logprobs alone.
type withoutLogprobs struct{ Request }

// MarshalJSON leaves the two fields out.
func (w withoutLogprobs) MarshalJSON() ([]byte, error) {
	body, err := w.Request.MarshalJSON()
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	delete(fields, "logprobs")
	delete(fields, "top_logprobs")
	return Encode(fields)
}

// question is the conversation before an answer that is to be read: what it was does not matter.
func question() []Message { return []Message{{Role: "user", Content: "."}} }

// begun is a message with a text as what the assistant has said so far, and the field in which it
// goes on. A server opens the thoughts of such a message itself, so that a text that begins with
// them is put behind that.
func (t *llamaTurn) begun(ctx context.Context, text string) (said Message, field string, err error) {
	asked, err := t.text(ctx, question(), true, nil)
	if err != nil {
		return said, "", err
	}
	opened, err := t.text(ctx, append(question(), Message{Role: roleAssistant,
		Thoughts: Thoughts{ReasoningContent: mark}}), false, fieldReasoningContent)
	if err != nil {
		return said, "", err
	}
	if opening, is := strings.CutSuffix(opened, mark); is {
		if thoughts, thinks := strings.CutPrefix(asked+text, opening); thinks {
			return Message{Role: roleAssistant, Thoughts: Thoughts{ReasoningContent: thoughts}},
				fieldReasoningContent, nil
		}
	}
	return Message{Role: roleAssistant, Content: text}, "content", nil
}

// native asks one of the server's own paths.
func (t *llamaTurn) native(ctx context.Context, path string, request, answer any) error {
	return t.lacks(t.post(ctx, t.root+path, request, answer))
}

// lacks says what a server needs that refuses these paths.
func (t *llamaTurn) lacks(err error) error {
	var f *Failure
	if t.chats || !errors.As(err, &f) || f.Status != http.StatusNotFound && f.Status != http.StatusNotImplemented {
		return err
	}
	f.Err = fmt.Errorf("%w. endpoint_api is tokens: llama.cpp must serve /apply-template, /tokenize, /detokenize, /completion and /v1/chat/completions at %s, with a chat template (--jinja); "+
		"else leave endpoint_api out of the run file", f.Err, t.root)
	return f
}
