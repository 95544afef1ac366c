package providers

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// The servers answer as their documentation and their sources say: vLLM 0.2x, SGLang 0.5 and
// llama.cpp's llama-server of 2026.

// vllm does not listen before its model is loaded. Errors stand in "error",
// with the status as code.
type vllm struct{}

func (vllm) loading() (string, bool) { return "", false }
func (vllm) full() (int, string)     { return http.StatusServiceUnavailable, "The engine is overloaded" }
func (vllm) health() string          { return "/health" }

func (vllm) refusal(status int, message string) any {
	kind := map[int]string{400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError",
		503: "ServiceUnavailableError"}[status]
	if kind == "" {
		kind = "InternalServerError"
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}}
}

func (vllm) answer(a ask, s spoken) any {
	choice := map[string]any{
		"index": 0, "message": message(s), "logprobs": map[string]any{"content": logprobs(s, false)},
		"finish_reason": s.reason, "stop_reason": nil,
		"token_ids": s.ids,
	}
	whole := completion(a, s, choice)
	whole["prompt_logprobs"], whole["prompt_token_ids"], whole["kv_transfer_params"] = nil, s.prompt, nil
	return whole
}

// sglang answers 503 while it loads, and where its queue is full. Errors are flat, and the
// tokens stand in meta_info.
type sglang struct{ version string }

func (sglang) loading() (string, bool) { return "The server is starting", true }
func (sglang) full() (int, string) {
	return http.StatusServiceUnavailable, "The request queue is full."
}
func (sglang) health() string { return "/health_generate" }

func (sglang) refusal(status int, message string) any {
	kind := "InternalServerError"
	switch status {
	case http.StatusBadRequest:
		kind = "BadRequestError"
	case http.StatusServiceUnavailable:
		kind = "ServiceUnavailableError"
	}
	return map[string]any{"object": "error", "message": message, "type": kind, "param": nil, "code": status}
}

func (d sglang) answer(a ask, s spoken) any {
	triples := make([][3]any, len(s.ids))
	for i, id := range s.ids {
		triples[i] = [3]any{logprob(id), id, nil}
	}
	choice := map[string]any{
		"index": 0, "message": message(s), "logprobs": map[string]any{"content": logprobs(s, false)},
		"finish_reason": s.reason, "matched_stop": nil,
		"prompt_token_ids": s.prompt,
		"meta_info": map[string]any{
			"id": "x", "finish_reason": map[string]any{"type": s.reason}, "prompt_tokens": len(s.prompt),
			"completion_tokens": len(s.ids),
			"weight_version":    d.version, "output_token_logprobs": triples, "cached_tokens": 0, "e2e_latency": 0.02,
		},
	}
	whole := completion(a, s, choice)
	whole["metadata"] = map[string]any{"weight_version": d.version}
	return whole
}

// llamacpp answers 503 while it loads. It has no token ids of the prompt, so
// its turns are text only.
type llamacpp struct{}

func (llamacpp) loading() (string, bool) { return "Loading model", true }
func (llamacpp) full() (int, string)     { return http.StatusServiceUnavailable, "no slot available" }
func (llamacpp) health() string          { return "/health" }

func (llamacpp) refusal(status int, message string) any {
	kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
		501: "not_supported_error", 503: "unavailable_error"}[status]
	if kind == "" {
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"code": status, "message": message, "type": kind}}
}

func (llamacpp) answer(a ask, s spoken) any {
	choice := map[string]any{"index": 0, "message": message(s),
		"logprobs": map[string]any{"content": logprobs(s, true)}, "finish_reason": s.reason}
	whole := completion(a, s, choice)
	whole["system_fingerprint"] = "b7000-0123abcd"
	whole["timings"] = map[string]any{"prompt_n": len(s.prompt), "prompt_ms": 3.1,
		"predicted_n": len(s.ids), "predicted_ms": 17.2}
	return whole
}

func completion(a ask, s spoken, choice map[string]any) map[string]any {
	return map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1790000000, "model": a.Model,
		"choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": len(s.prompt), "completion_tokens": len(s.ids),
			"total_tokens": len(s.prompt) + len(s.ids)},
	}
}

func message(s spoken) map[string]any {
	m := map[string]any{"role": "assistant", "content": s.content}
	if len(s.calls) > 0 {
		m["tool_calls"] = s.calls
	}
	return m
}

// logprobs are OpenAI's, with the token's id where a server gives it.
func logprobs(s spoken, id bool) []map[string]any {
	list := make([]map[string]any, len(s.ids))
	for i, t := range s.ids {
		list[i] = map[string]any{"token": fmt.Sprint("<", t, ">"), "logprob": logprob(t), "bytes": nil,
			"top_logprobs": []any{}}
		if id {
			list[i]["id"] = t
		}
	}
	return list
}

// agent is a model that asks for one tool and then is done. Its tokens are the bytes of a template,
// which extends by each message.
func agent(a ask) spoken {
	var s spoken
	answered := false
	for _, raw := range a.Messages {
		var m struct {
			Role    string          `json:"role"`
			Content string          `json:"content"`
			Calls   json.RawMessage `json:"tool_calls"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			panic(err) // what Rondo sends is JSON
		}
		answered = answered || m.Role == "tool"
		text := m.Content
		if len(m.Calls) > 0 {
			text = callText
		}
		s.prompt = append(s.prompt, template(m.Role, text)...)
	}
	s.prompt = append(s.prompt, opening("assistant")...)
	text := "Done."
	s.reason = "stop"
	if s.content = text; !answered {
		text, s.content, s.reason = callText, "", "tool_calls"
		s.calls = []map[string]any{{"id": "call_1", "type": "function",
			"function": map[string]any{"name": "list_dir", "arguments": `{"path":"."}`}}}
	}
	s.ids = append(letters(text), end)
	return s
}

// callText is how the template spells the one call that there is.
const callText = `<call list_dir {"path":"."}>`

const begin, end = 1000, 1001

func letters(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range text {
		ids[i] = int32(text[i])
	}
	return ids
}

func opening(role string) []int32 { return append([]int32{begin}, letters(role+":")...) }

func template(role, text string) []int32 {
	return append(append(opening(role), letters(text)...), end)
}
