package tokenstest

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// opens is how parsers open thoughts.
const opens = "<think>"

// llamaRequest is what llama.cpp's paths read of a request.
type llamaRequest struct {
	Messages []struct {
		Message
		ReasoningContent string `json:"reasoning_content"`
	} `json:"messages"`
	Prompts   *bool           `json:"add_generation_prompt"`
	Continues any             `json:"continue_final_message"`
	Content   string          `json:"content"`
	Tokens    []int32         `json:"tokens"`
	Prompt    []int32         `json:"prompt"`
	Predict   int             `json:"n_predict"`
	Returns   bool            `json:"return_tokens"`
	Probs     int             `json:"n_probs"`
	Post      bool            `json:"post_sampling_probs"`
	Stream    bool            `json:"stream"`
	Stop      []string        `json:"stop"`
	Bias      [][]float64     `json:"logit_bias"`
	Logprobs  bool            `json:"logprobs"`
	Top       json.RawMessage `json:"top_logprobs"`
	Fields    []string        `json:"response_fields"`
}

// only are the fields of an answer that were asked for: all, where none was named.
func (in llamaRequest) only(answer map[string]any) map[string]any {
	maps.DeleteFunc(answer, func(name string, _ any) bool {
		return len(in.Fields) > 0 && !slices.Contains(in.Fields, name)
	})
	return answer
}

// LlamaCPP makes the server one of llama.cpp, as llama-cpp-python 0.3.36 ships it: what is said of
// its paths here stands in tools/server and common/chat.cpp there.
func (s *Server) LlamaCPP() *Server {
	s.engine = "llamacpp"
	for path, answer := range map[string]func(llamaRequest) map[string]any{
		"/apply-template": s.applyTemplate,
		"/tokenize": func(in llamaRequest) map[string]any {
			return map[string]any{"tokens": s.Tokenizer.Encode(in.Content, false)}
		},
		"/detokenize": func(in llamaRequest) map[string]any {
			return map[string]any{"content": s.Tokenizer.Decode(
				in.Tokens)}
		},
		"/completion": s.completion, "/v1/chat/completions": s.continued,
	} {
		handle(s, path, answer)
	}
	return s
}

// handle serves a path of JSON.
func handle[T any](s *Server, path string, answer func(T) map[string]any) {
	s.mux.HandleFunc("POST "+path, s.serve(path, func(body json.RawMessage) map[string]any {
		var in T
		if err := json.Unmarshal(body, &in); err != nil {
			return refused("%v", err)
		}
		return answer(in)
	}))
}

// applyTemplate renders messages as text. A last message of the assistant's is
// gone on with, and not ended.
func (s *Server) applyTemplate(in llamaRequest) map[string]any {
	text, _, why := s.llamaPrompt(in)
	if why != "" {
		return refused("%s", why)
	}
	return map[string]any{"prompt": text}
}

// llamaPrompt is a chat's prompt, and what of it belongs to the answer.
func (s *Server) llamaPrompt(in llamaRequest) (text, begun, why string) {
	messages := make([]Message, len(in.Messages))
	for i, m := range in.Messages {
		messages[i] = m.Message
		messages[i].Reasoning = m.ReasoningContent
	}
	last := len(messages) - 1
	if messages[last].Role != "assistant" {
		return s.Template.Render(messages, in.Prompts == nil || *in.Prompts), "", ""
	}
	if len(messages[last].ToolCalls) > 0 {
		return "", "", "Cannot continue an assistant message that contains tool calls."
	}
	if in.Continues != nil && (in.Prompts == nil || *in.Prompts) {
		return "", "", "Cannot set both add_generation_prompt and continue_final_message to true."
	}
	before, _, _ := strings.Cut(s.Template.asks(messages[:last]), opens)
	begun = opens + messages[last].Reasoning
	if in.Continues == "content" || in.Continues != "reasoning_content" && messages[last].Content != "" {
		begun += "</think>" + messages[last].Content
	}
	return s.Template.Render(messages[:last], false) + before + begun, begun, ""
}

// completion samples. The list of probabilities ends before the text that stopped the answer, and
// counts that by a tokenization of its own. It lacks tokens that end within a character.
func (s *Server) completion(in llamaRequest) map[string]any {
	if len(in.Prompt) >= s.context() {
		return map[string]any{"refused": "the request does not fit", "type": "exceed_context_size_error",
			"n_prompt_tokens": len(in.Prompt), "n_ctx": s.context()}
	}
	text, finish := s.Say(s.Tokenizer.Decode(in.Prompt))
	ids, stop, word := s.Tokenizer.Encode(text, true), "eos", ""
	for _, w := range in.Stop {
		if at := strings.Index(text, w); at >= 0 {
			ids, stop, word = s.Tokenizer.Encode(text[:at+len(w)], true), "word", w
		}
	}
	if most := min(in.Predict, s.context()-len(in.Prompt)); len(ids) > most || finish == "length" {
		ids, stop, word = ids[:min(most, len(ids))], "limit", ""
	}
	s.sampledTurn(in.Prompt, ids)
	content := strings.TrimSuffix(s.Tokenizer.Decode(ids), word)
	for _, special := range append(s.Template.Stop[:], s.Template.End) { // special tokens have no text here
		content = strings.TrimSuffix(content, strings.TrimSpace(special))
	}
	answer := map[string]any{
		"content": content, "stop_type": stop, "stopping_word": word, "tokens_evaluated": len(in.Prompt),
		"tokens_predicted": len(ids), "truncated": false, "tokens": []int32{}, "stop": true,
	}
	if in.Returns {
		answer["tokens"] = ids
	}
	if in.Stream && s.Streams == RefusesStream {
		return refused("stream is not supported")
	}
	streams := in.Stream && s.Streams == Streaming
	var list []any
	measured := len(ids)
	if stop == "word" && !streams {
		measured -= min(measured, len(s.Tokenizer.Encode(word, false)))
	}
	for i, id := range ids[:measured] {
		prob := float32(math.Exp(float64(Logprob(i))))
		top := []any{}
		others, logprobs := Tops(id, i, in.Probs)
		for n := range others {
			top = append(top, map[string]any{"id": others[n], "token": "", "bytes": []int{},
				"prob": float32(math.Exp(float64(logprobs[n])))})
		}
		entry := map[string]any{"id": id, "token": s.Tokenizer.Decode(ids[i : i+1]), "bytes": []int{},
			"prob": prob, "top_probs": top}
		if s.Drafts {
			entry["prob"], entry["top_probs"] = 1, []any{}
		}
		if !in.Post {
			delete(entry, "prob")
			delete(entry, "top_probs")
			entry["logprob"] = Logprob(i)
		}
		list = append(list, entry)
	}
	if streams {
		answer["streamed"] = func() []event {
			events := s.tokenEvents(answer, ids, list)
			in.only(events[len(events)-1].body)
			return events
		}
		return answer
	}
	kept := []any{}
	for i := range list {
		if !s.splits(ids[:i+1]) {
			kept = append(kept, list[i])
		}
	}
	if in.Probs > 0 && len(kept) > 0 {
		answer["completion_probabilities"] = kept
	}
	return in.only(answer)
}

// splits reports whether tokens end within a character.
func (s *Server) splits(ids []int32) bool { return !utf8.ValidString(s.Tokenizer.Decode(ids)) }

// tokenEvents have a token each, with its text, and its log-probability. There is none for a token
// that ends within a character: its text comes with the next one. The last event has no token.
func (s *Server) tokenEvents(answer map[string]any, ids []int32, list []any) (events []event) {
	said := ""
	for i := range ids {
		if s.splits(ids[:i+1]) {
			continue
		}
		text := s.plain(ids[:i+1])
		body := map[string]any{
			"index": 0, "content": strings.TrimPrefix(text, said), "tokens": ids[i : i+1], "stop": false, "id_slot": 0,
			"tokens_predicted": i + 1, "tokens_evaluated": answer["tokens_evaluated"],
		}
		if i < len(list) && !s.Drafts {
			body["completion_probabilities"] = list[i : i+1]
		}
		events, said = append(events, event{i, body}), text
	}
	last := maps.Clone(answer)
	last["content"], last["tokens"] = "", []int32{}
	delete(last, "streamed")
	return append(events, event{len(ids), last})
}

// plain is the text of tokens without that of special ones.
func (s *Server) plain(ids []int32) string {
	var text strings.Builder
	special := append(s.Template.Stop[:], s.Template.End)
	for _, id := range ids {
		piece := s.Tokenizer.Decode([]int32{id})
		if !slices.ContainsFunc(special, func(stop string) bool { return strings.TrimSpace(stop) == piece }) {
			text.WriteString(piece)
		}
	}
	return text.String()
}

// continued goes on with an answer by one token, which is the one that a bias is given
// for, and reads the message.
func (s *Server) continued(in llamaRequest) map[string]any {
	if len(in.Top) > 0 && !in.Logprobs {
		return refused("top_logprobs requires logprobs to be set to true")
	}
	_, begun, why := s.llamaPrompt(in)
	if why != "" {
		return refused("%s", why)
	}
	if len(in.Bias) != 1 || !strings.Contains(strings.Join(append(s.Template.Stop[:], "<|endoftext|>"), " "),
		s.Tokenizer.Decode([]int32{int32(in.Bias[0][0])})) {
		begun += " and more" // a token that nobody asked for
	}
	message := s.Template.Read(begun)
	if strings.Contains(message.Content, s.Template.Calls[0]) { // a call that is none
		return map[string]any{"status": http.StatusInternalServerError,
			"error": map[string]any{"code": 500,
				"message": "The model produced output that does not match the expected peg-native format"}}
	}
	answer := map[string]any{"role": "assistant", "content": message.Content}
	if message.Reasoning != "" {
		answer["reasoning_content"] = message.Reasoning
	}
	if len(message.ToolCalls) > 0 {
		answer["tool_calls"] = message.ToolCalls
	}
	return map[string]any{"choices": []any{map[string]any{"index": 0, "message": answer,
		"finish_reason": ending(message, "length")}}}
}
