package generator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// request is what arrived at the endpoint.
type request struct {
	at   time.Time
	body inference.Request
	key  string
}

// endpoint is an inference server that answers as the test says.
type endpoint struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

type answer func(w http.ResponseWriter, r *http.Request)

// serve starts an endpoint that gives one answer after the other and repeats the last one.
func serve(t *testing.T, answers ...answer) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // it does not tell how long its context is
			http.NotFound(w, r)
			return
		}
		got := request{at: time.Now(), key: r.Header.Get("Authorization")}
		if err := json.NewDecoder(r.Body).Decode(&got.body); err != nil || r.URL.Path != "/v1/chat/completions" {
			t.Errorf("request to %s: %v", r.URL.Path, err)
		}
		e.mu.Lock()
		n := len(e.requests)
		e.requests = append(e.requests, got)
		e.mu.Unlock()
		answers[min(n, len(answers)-1)](w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) seen() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]request(nil), e.requests...)
}

// text answers with a body.
func text(body string) answer {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// status answers with an error.
func status(code int, header ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		http.Error(w, "the server is not well", code)
	}
}

// hang answers nothing until the client leaves.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// final is an answer without tool calls, as vLLM gives it.
const final = `{"id":"x","model":"small","prompt_token_ids":[1,2,3],"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Done."},
	"token_ids":[4,5],"logprobs":{"content":[{"token":"a","logprob":-0.5},{"token":"b","logprob":0}]}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`

// asking is an answer with one tool call.
func asking(prompt, ids, arguments string) answer {
	return text(fmt.Sprintf(`{"prompt_token_ids":%s,"choices":[{"finish_reason":"tool_calls","message":{"content":null,
		"tool_calls":[{"id":"c1","type":"function","function":{"name":"read_file","arguments":%s}}]},
		"token_ids":%s,"logprobs":{"content":[{"logprob":-1},{"logprob":-1}]}}]}`, prompt, arguments, ids))
}

// ending is an answer without tool calls and with two tokens.
func ending(prompt, ids string) answer {
	return text(fmt.Sprintf(`{"prompt_token_ids":%s,"choices":[{"finish_reason":"stop","message":{"content":"Done."},
		"token_ids":%s,"logprobs":{"content":[{"logprob":-1},{"logprob":-1}]}}]}`, prompt, ids))
}
