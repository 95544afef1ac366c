// Package probetest is an inference server that speaks as vLLM, SGLang, llama.cpp or OpenAI do,
// with one thing missing or wrong.
package probetest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// Kinds of servers.
const (
	VLLM     = "vllm"
	SGLang   = "sglang"
	LlamaCPP = "llamacpp"
	OpenAI   = "openai"
)

// Lacks of a server; the zero value has none.
type Lacks struct {
	PromptIDs, IDs, Logprobs, Agreement bool
	// ToolCalls are left in the text, NoTools calls none, and RefuseTools refuses
	// requests that offer some.
	ToolCalls, NoTools, RefuseTools bool
	// Raw log-probabilities, though the server samples from another distribution;
	// NoTop gives no alternatives.
	Raw, NoTop bool
	// Rewrites the first turn in the prompt of the second.
	Rewrites bool
	// Label: no answer says which weights it was sampled with. Context: how long it is
	// in tokens, 0 for 131072.
	Label   bool
	Context int
}

// request is what the server reads of a request.
type request struct {
	Messages []struct {
		Role      string            `json:"role"`
		Content   string            `json:"content"`
		ToolCalls []json.RawMessage `json:"tool_calls"`
	} `json:"messages"`
	Tools       []json.RawMessage `json:"tools"`
	Temperature *float64          `json:"temperature"`
	TopK        *int              `json:"top_k"`
	TopLogprobs *int              `json:"top_logprobs"`
	Logprobs    bool              `json:"logprobs"`
	IDs         bool              `json:"return_token_ids"`
	PromptIDs   bool              `json:"return_prompt_token_ids"`
	Meta        bool              `json:"return_meta_info"`
}

// Server starts a server of a kind, whose model is "m".
func Server(t testing.TB, kind string, lacks Lacks) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		context := lacks.Context
		if context == 0 {
			context = 1 << 17
		}
		model := map[string]any{"id": "m", "object": "model", "owned_by": kind}
		switch kind {
		case LlamaCPP:
			model["meta"] = map[string]any{"n_ctx_train": context}
		case VLLM, SGLang:
			model["max_model_len"] = context
		}
		json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": []any{model}})
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		fields := map[string]json.RawMessage{}
		var in request
		body, err := json.Marshal(decode(r, &fields))
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			t.Errorf("read a request: %v", err)
		}
		if refusal := refuse(kind, lacks, fields, in); refusal != "" {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": refusal,
				"type": "invalid_request_error", "code": 400}})
			return
		}
		json.NewEncoder(w).Encode(answer(kind, lacks, in))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func decode(r *http.Request, fields *map[string]json.RawMessage) map[string]json.RawMessage {
	if err := json.NewDecoder(r.Body).Decode(fields); err != nil {
		return nil
	}
	return *fields
}

// openAIFields are those that OpenAI's own API takes.
var openAIFields = []string{"model", "messages", "tools", "tool_choice", "temperature", "max_tokens", "top_p",
	"presence_penalty", "frequency_penalty", "stop", "seed", "logprobs", "top_logprobs"}

func refuse(kind string, lacks Lacks, fields map[string]json.RawMessage, in request) string {
	if kind == OpenAI {
		for name := range fields {
			if !slices.Contains(openAIFields, name) {
				return "Unknown parameter: '" + name + "'."
			}
		}
	}
	if lacks.RefuseTools && len(in.Tools) > 0 {
		return `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`
	}
	return ""
}

// vocabulary are the tokens of the first position with their logits; what an answer says
// follows from its text alone.
var vocabulary = map[string]float64{"Tree": 2, "Sea": 1.5, "Sky": 1, "Stone": 0.2, "Ox": -1}

// first are the log-probabilities of the first position.
func first(lacks Lacks, in request) (best string, logprobs map[string]float64) {
	temperature, kept := 1.0, len(vocabulary)
	if !lacks.Raw {
		if in.Temperature != nil && *in.Temperature > 0 {
			temperature = *in.Temperature
		}
		if in.TopK != nil && *in.TopK > 0 {
			kept = *in.TopK
		}
	}
	names := []string{"Tree", "Sea", "Sky", "Stone", "Ox"}[:kept]
	sum := 0.0
	for _, name := range names {
		sum += math.Exp(vocabulary[name] / temperature)
	}
	logprobs = map[string]float64{}
	for _, name := range names {
		logprobs[name] = vocabulary[name]/temperature - math.Log(sum)
	}
	return names[0], logprobs
}

// tokensOf are the bytes of a text.
func tokensOf(text string) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

const call = `<tool_call>{"name":"list_dir","arguments":{"path":"."}}</tool_call>`

// answer is a turn: one word where there are no tools, a tool call, and then the end.
func answer(kind string, lacks Lacks, in request) any {
	var prompt strings.Builder
	answered := false
	for _, m := range in.Messages {
		text := m.Content
		if len(m.ToolCalls) > 0 {
			text = call
		}
		if lacks.Rewrites && m.Role == "assistant" {
			text = strings.ToUpper(text)
		}
		answered = answered || m.Role == "tool"
		fmt.Fprintf(&prompt, "<|%s|>%s\n", m.Role, text)
	}
	prompt.WriteString("<|assistant|>")
	message, text, reason := map[string]any{"role": "assistant"}, "Done.", "stop"
	best, alternatives := first(lacks, in)
	switch {
	case len(in.Tools) == 0:
		text = best
	case !answered && !lacks.NoTools:
		text = call
	}
	message["content"] = text
	if text == call && !lacks.ToolCalls {
		message["content"], reason = nil, "tool_calls"
		message["tool_calls"] = []any{map[string]any{"id": "c1", "type": "function",
			"function": map[string]any{"name": "list_dir", "arguments": `{"path":"."}`}}}
	}
	ids := tokensOf(text)
	content := []any{}
	for i := range ids {
		entry := map[string]any{"token": string(text[i]), "logprob": -0.5}
		if len(in.Tools) == 0 && i == 0 {
			entry["token"], entry["logprob"] = best, alternatives[best]
			if in.TopLogprobs != nil && *in.TopLogprobs > 0 && !lacks.NoTop {
				top := []any{}
				for name, logprob := range alternatives {
					top = append(top, map[string]any{"token": name, "logprob": logprob})
				}
				entry["top_logprobs"] = top
			}
		}
		content = append(content, entry)
	}
	choice := map[string]any{"index": 0, "finish_reason": reason, "message": message}
	whole := map[string]any{
		"model": "m", "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": prompt.Len(), "completion_tokens": len(ids)},
	}
	if lacks.Agreement {
		whole["usage"] = map[string]any{"prompt_tokens": prompt.Len(), "completion_tokens": len(ids) + 3}
	}
	if in.Logprobs && !lacks.Logprobs {
		choice["logprobs"] = map[string]any{"content": content}
	}
	promptIDs := tokensOf(prompt.String())
	switch kind {
	case VLLM:
		if in.IDs && !lacks.IDs {
			choice["token_ids"] = ids
		}
		if in.IDs && !lacks.PromptIDs {
			whole["prompt_token_ids"] = promptIDs
		}
		if !lacks.Label {
			whole["weight_version"] = "7"
		}
	case SGLang:
		meta := map[string]any{"weight_version": "7"}
		if lacks.Label {
			meta["weight_version"] = "default"
		}
		if in.Meta && !lacks.IDs && !lacks.Logprobs {
			triples := []any{}
			for i, id := range ids {
				triples = append(triples, []any{content[i].(map[string]any)["logprob"], id, nil})
			}
			meta["output_token_logprobs"] = triples
		}
		choice["meta_info"] = meta
		if in.PromptIDs && !lacks.PromptIDs {
			choice["prompt_token_ids"] = promptIDs
		}
	}
	return whole
}
