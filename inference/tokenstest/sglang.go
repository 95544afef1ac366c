package tokenstest

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// SGLang makes the server one of SGLang 0.5.23: what is said of its paths here stands in
// srt/entrypoints and srt/managers there.
func (s *Server) SGLang() *Server {
	s.engine = "sglang"
	s.mux.HandleFunc("GET /server_info", func(w http.ResponseWriter, r *http.Request) {
		s.count(r.URL.Path)
		json.NewEncoder(w).Encode(map[string]any{"reasoning_parser": "qwen3",
			"tool_call_parser": "qwen25", "version": "0.5.23"})
	})
	handle(s, "/v1/tokenize", s.tokenizeChat)
	handle(s, "/generate", s.generateNative)
	handle(s, "/detokenize", func(in sglangRequest) map[string]any {
		if in.Skips == nil || *in.Skips {
			return refused("special tokens are part of the answer")
		}
		return map[string]any{"text": s.Tokenizer.Decode(in.Tokens)}
	})
	handle(s, "/separate_reasoning", s.separateReasoning)
	handle(s, "/parse_function_call", s.parseCalls)
	return s
}

type sglangRequest struct {
	Messages []struct {
		Message
		ReasoningContent string `json:"reasoning_content"`
	} `json:"messages"`
	Prompts *bool   `json:"add_generation_prompt"`
	IDs     []int32 `json:"input_ids"`
	Stream  bool    `json:"stream"`
	Tokens  []int32 `json:"tokens"`
	Skips   *bool   `json:"skip_special_tokens"`
	Params  struct {
		Most    int      `json:"max_new_tokens"`
		Every   int      `json:"stream_interval"`
		Stop    []string `json:"stop"`
		Special bool     `json:"skip_special_tokens"`
	} `json:"sampling_params"`
	Adapter  string            `json:"lora_path"`
	Logprobs bool              `json:"return_logprob"`
	Tops     int               `json:"top_logprobs_num"`
	Masks    bool              `json:"return_sampling_mask"`
	Experts  bool              `json:"return_routed_experts"`
	Start    int               `json:"routed_experts_start_len"`
	Text     string            `json:"text"`
	Parser   string            `json:"reasoning_parser"`
	Calls    string            `json:"tool_call_parser"`
	Tools    []json.RawMessage `json:"tools"`
}

// tokenizeChat renders messages as they are given where add_generation_prompt is there.
func (s *Server) tokenizeChat(in sglangRequest) map[string]any {
	messages := make([]Message, len(in.Messages))
	for i, m := range in.Messages {
		messages[i] = m.Message
		messages[i].Reasoning = m.ReasoningContent
	}
	ids := s.Tokenizer.Encode(s.Template.Render(messages, in.Prompts == nil || *in.Prompts), false)
	return map[string]any{"tokens": ids, "count": len(ids), "max_model_len": s.context()}
}

// generateNative samples. The log-probabilities are [logprob, id, text or null].
func (s *Server) generateNative(in sglangRequest) map[string]any {
	if in.Stream && s.Streams == RefusesStream {
		return refused("stream is not supported")
	}
	if in.Adapter != s.Adapter {
		return refused("The following requested LoRA adapters are not loaded: %s", in.Adapter)
	}
	if len(in.IDs) >= s.context() {
		return refused("The input (%d tokens) is longer than the model's context length (%d tokens).", len(in.IDs),
			s.context())
	}
	text, finish := s.Say(s.Tokenizer.Decode(in.IDs))
	if finish == "paused" {
		return map[string]any{"status": http.StatusServiceUnavailable}
	}
	ids := s.Tokenizer.Encode(text, true)
	reason := map[string]any{"type": "stop"}
	switch {
	case len(ids) > in.Params.Most:
		ids = ids[:in.Params.Most]
		reason = map[string]any{"type": "length", "length": in.Params.Most}
	case finish == "length":
		reason = map[string]any{"type": "length", "length": len(ids)}
	case finish == "abort":
		reason = map[string]any{"type": "abort", "message": "Aborted", "status_code": nil, "err_type": nil}
	case len(ids) > 0:
		reason["matched"] = ids[len(ids)-1]
	}
	s.sampledTurn(in.IDs, ids)
	out := s.Tokenizer.Decode(ids)
	for _, stop := range s.Template.Stop { // the stop token has no text
		out = strings.TrimSuffix(out, stop)
	}
	var triples []any
	for i, id := range ids {
		triples = append(triples, []any{Logprob(i), id, nil})
	}
	meta := map[string]any{
		"id": "1", "finish_reason": reason, "prompt_tokens": len(in.IDs), "completion_tokens": len(ids),
		"weight_version":  "default",
		"weight_versions": []any{map[string]any{"version": "default", "start": 0, "end": len(ids)}},
	}
	if in.Logprobs {
		meta["output_token_logprobs"] = triples
	}
	if in.Masks && s.Masks {
		meta["output_token_sampling_mask"] = masks(ids)
	}
	if in.Experts && s.Mixture != nil {
		meta["routed_experts"] = base64.StdEncoding.EncodeToString(s.Mixture.rows(slices.Concat(in.IDs, ids),
			in.Start, 4))
	}
	if in.Tops > 0 {
		places := []any{}
		for i, id := range ids {
			entries := []any{}
			list, logprobs := Tops(id, i, in.Tops)
			for n := range list {
				entries = append(entries, []any{logprobs[n], list[n], nil})
			}
			places = append(places, entries)
		}
		meta["output_top_logprobs"] = places
	}
	answer := map[string]any{"text": out, "output_ids": ids, "meta_info": meta}
	if in.Stream && s.Streams == Streaming {
		answer["streamed"] = func() []event { return s.growing(answer, max(1, in.Params.Every)) }
	}
	return answer
}

// growing are the events of a stream: the first token at once, and then so many at a time. Each has
// the whole answer so far, or what is new, and counts all tokens. The versions of the tokens come
// with the last one. Where the answer is given up, that has all log-probabilities and the last id,
// if events hold what is new.
func (s *Server) growing(answer map[string]any, every int) (events []event) {
	meta := answer["meta_info"].(map[string]any)
	ids := answer["output_ids"].([]int32)
	triples, _ := meta["output_token_logprobs"].([]any)
	finish, _ := meta["finish_reason"].(map[string]any)
	text, sent := answer["text"].(string), 0
	for ends := false; !ends; {
		begin, end := sent, min(sent+every, len(ids))
		if sent == 0 {
			end = min(1, len(ids))
		}
		ends = end == len(ids)
		if !s.Incremental {
			begin = 0
		}
		part := maps.Clone(meta)
		part["completion_tokens"], part["finish_reason"] = end, nil
		if triples != nil {
			part["output_token_logprobs"] = triples[begin:end]
		}
		body := map[string]any{"text": strings.ToValidUTF8(s.Tokenizer.Decode(ids[begin:end]), "\ufffd"),
			"output_ids": ids[begin:end], "meta_info": part}
		switch {
		case !ends:
			delete(part, "weight_versions")
		case s.Incremental && finish["type"] == "abort":
			body["text"], body["output_ids"], part["output_token_logprobs"] = text, ids[max(0, len(ids)-1):], triples
			fallthrough
		default:
			part["finish_reason"] = finish
			if body["text"] != text {
				body["text"] = strings.TrimPrefix(text, s.Tokenizer.Decode(ids[:begin]))
			}
		}
		events, sent = append(events, event{sent, body}), end
	}
	return events
}

func (s *Server) separateReasoning(in sglangRequest) map[string]any {
	if in.Parser == "" {
		return refused("reasoning_parser is required")
	}
	thoughts, words, ended := strings.Cut(in.Text, "</think>")
	if !ended || !strings.HasPrefix(in.Text, opens) {
		return map[string]any{"reasoning_text": "", "text": in.Text}
	}
	return map[string]any{"reasoning_text": strings.Trim(strings.TrimPrefix(thoughts, opens), "\n"),
		"text": strings.TrimLeft(words, "\n")}
}

func (s *Server) parseCalls(in sglangRequest) map[string]any {
	if in.Calls == "" || len(in.Tools) == 0 {
		return refused("tool_call_parser is required")
	}
	message := s.Template.Read(in.Text)
	calls := []any{}
	for i, c := range message.ToolCalls {
		calls = append(calls, map[string]any{"tool_index": i, "name": c.Function.Name,
			"parameters": c.Function.Arguments})
	}
	if len(calls) == 0 {
		message.Content = in.Text
	}
	return map[string]any{"normal_text": message.Content, "calls": calls}
}
