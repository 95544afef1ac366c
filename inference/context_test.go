package inference

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOverflow reads what servers answer to a request that is too long for their context, and takes
// no other refusal for one.
func TestOverflow(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   *Overflow
	}{
		"vllm's prompt": {400,
			`{"error":{"message":"This model's maximum context length is 2048 tokens. However, your request has 3011 input tokens. Please reduce the length of the input messages. None","type":"BadRequestError","param":null,"code":400}}`,
			&Overflow{Prompt: 3011, Limit: 2048}},
		"vllm's max_tokens": {400,
			`{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request has 904 input tokens (4096 > 4096 - 904). None","type":"BadRequestError","param":null,"code":400}}`,
			&Overflow{Prompt: 904, Limit: 4096}},
		"older vllm": {400,
			`{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (904 in the messages, 4096 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}`,
			&Overflow{Prompt: 904, Limit: 4096}},
		"newer vllm, which stops counting": {400,
			`{"error":{"message":"You passed 57345 input tokens and requested 8192 output tokens. However, the model's context length is only 65536 tokens, resulting in a maximum input length of 57344 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=57345)","type":"BadRequestError","param":"input_tokens","code":400}}`,
			&Overflow{Prompt: 0, Limit: 65536}},
		"vllm's engine": {400,
			`{"error":{"message":"The decoder prompt (length 3011) is longer than the maximum model length of 2048. Make sure that max_model_len is no smaller than the number of text tokens.","type":"BadRequestError","code":400}}`,
			&Overflow{Prompt: 3011, Limit: 2048}},
		"sglang's prompt": {400,
			`{"object":"error","message":"The input (3011 tokens) is longer than the model's context length (2048 tokens).","type":"BadRequestError","param":null,"code":400}`,
			&Overflow{Prompt: 3011, Limit: 2048}},
		"sglang's total": {400,
			`{"object":"error","message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 904 tokens from the input messages and 4096 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.","type":"BadRequestError","param":null,"code":400}`,
			&Overflow{Prompt: 904, Limit: 4096}},
		"llama.cpp": {400,
			`{"error":{"code":400,"message":"request (3011 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":3011,"n_ctx":2048}}`,
			&Overflow{Prompt: 3011, Limit: 2048}},
		"older llama.cpp": {400,
			`{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"invalid_request_error"}}`, &Overflow{}},
		"openai": {400,
			`{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`,
			&Overflow{Prompt: 9000, Limit: 8192}},
		"a number without end": {400,
			`{"error":{"message":"This model's maximum context length is 99999999999999999999999 tokens."}}`,
			&Overflow{Prompt: 0, Limit: 1<<63 - 1}},
		"another refusal": {400,
			`{"error":{"message":"temperature must be non-negative","type":"BadRequestError","code":400}}`, nil},
		"a server in trouble": {500,
			`{"error":{"message":"This model's maximum context length is 2048 tokens."}}`, nil},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		client := &Client{HTTP: s.Client()}
		_, err := client.Complete(t.Context(), s.URL, Request{})
		s.Close()
		var failure *Failure
		if !errors.As(err, &failure) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := failure.Overflow
		switch {
		case (got == nil) != (c.want == nil):
			t.Errorf("%s: read as %+v, want %+v", name, got, c.want)
		case got != nil && c.want.Limit < 1<<62 && *got != *c.want:
			t.Errorf("%s: read as %+v, want %+v", name, *got, *c.want)
		}
	}
}

// TestContextLimit: each kind of server says in its own place how long its context is.
func TestContextLimit(t *testing.T) {
	for name, c := range map[string]struct {
		models, props string
		want          int
	}{
		"vllm": {`{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]}`, "",
			4096},
		"sglang": {`{"object":"list","data":[{"id":"m","owned_by":"sglang","max_model_len":8192}]}`,
			"", 8192},
		"llama.cpp": {`{"object":"list","data":[{"id":"other.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":131072,"n_ctx":2048}}]}`, "", 2048},
		"older llama.cpp": {`{"object":"list","data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx_train":131072}}]}`,
			`{"default_generation_settings":{"n_ctx":1024},"total_slots":1}`, 1024},
		"one that does not say":   {`{"object":"list","data":[{"id":"m","owned_by":"openai"}]}`, "", 0},
		"one of others' models":   {`{"data":[{"id":"a","max_model_len":1},{"id":"b","max_model_len":2}]}`, "", 0},
		"one of several models":   {`{"data":[{"id":"a","max_model_len":1},{"id":"m","max_model_len":2}]}`, "", 2},
		"one with a wrong number": {`{"data":[{"id":"m","max_model_len":-5}]}`, "", 0},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.models) })
		mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.props) })
		s := httptest.NewServer(mux)
		client := &Client{HTTP: s.Client()}
		if got, err := client.ContextLimit(t.Context(), s.URL+"/v1", "m"); err != nil || got != c.want {
			t.Errorf("%s: %d: %v, want %d", name, got, err, c.want)
		}
		s.Close()
	}
}
