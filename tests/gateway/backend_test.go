package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// backend is an inference server as vLLM is one: chat completions with token ids and
// log-probabilities. Its tokens are the bytes of a chat template, so that a conversation that is
// repeated as it was extends the last prompt exactly.
type backend struct {
	t   *testing.T
	url string

	mu   sync.Mutex
	asks []ask
	next func(n int, a ask) said
	// uncounting is the status with which it answers who asks for a number
	// of tokens; 0 counts them.
	uncounting int
}

// ask is a request that came.
type ask struct {
	Model       string    `json:"model"`
	Messages    []message `json:"messages"`
	Tools       []any     `json:"tools"`
	Temperature float64   `json:"temperature"`
	MaxTokens   int       `json:"max_tokens"`
	Seed        int64     `json:"seed"`
	Stream      bool      `json:"stream"`
	Logprobs    bool      `json:"logprobs"`
	IDs         bool      `json:"return_token_ids"`
	TopP        *float64  `json:"top_p"`
	TopK        *int      `json:"top_k"`
	MinP        *float64  `json:"min_p"`
	Repetition  *float64  `json:"repetition_penalty"`
	Stop        any       `json:"stop"`
	Template    any       `json:"chat_template_kwargs"`
	Tops        int       `json:"top_logprobs"`
	TokensAsIDs bool      `json:"return_tokens_as_token_ids"`
	Experts     bool      `json:"return_routed_experts"`
	Masks       bool      `json:"return_sampling_mask"`

	leave <-chan struct{} // closed when the client is gone
}

// said is what the model says to a request.
type said struct {
	content  string
	thought  string
	calls    [][2]string // names and arguments
	reason   string
	textOnly bool
	// raw answers instead, with any status and header.
	raw    string
	status int
	header map[string]string
	// cut breaks the connection within the answer.
	cut bool
	// between is called behind each event of a stream, with all that was
	// sent, but for the last ones.
	between func(sent string)
	// beside adds to an answer what it says of its tokens.
	beside func(whole, choice map[string]any, prompt, ids []int32)
}

// newBackend starts a server whose model says what next gives for the n-th request, counted from 0.
func newBackend(t *testing.T, next func(n int, a ask) said) *backend {
	t.Helper()
	b := &backend{t: t, next: next}
	server := httptest.NewServer(http.HandlerFunc(b.complete))
	t.Cleanup(server.Close)
	b.url = server.URL + "/v1"
	return b
}

// host is its address.
func (b *backend) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(b.url, "http://"), "/v1")
}

func (b *backend) seen() []ask {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]ask(nil), b.asks...)
}

const (
	begins = 1000 // the token that begins a message
	ends   = 1001
)

func bytesOf(text string) []int32 {
	var ids []int32
	for _, c := range []byte(text) {
		ids = append(ids, int32(c))
	}
	return ids
}

// template renders one message.
func template(m message) []int32 {
	content, _ := m["content"].(string)
	if list, ok := m["content"].([]any); ok { // as many tokens for each image, which do not say which one it is
		for _, p := range list {
			said, _ := p.(map[string]any)["text"].(string)
			if p.(map[string]any)["type"] == "image_url" {
				said = strings.Repeat("~", 6)
			}
			content += said
		}
	}
	ids := append([]int32{begins}, bytesOf(fmt.Sprint(m["role"], ":"))...)
	return append(append(ids, spoken(content, calls(m))...), ends)
}

// spoken is what the model samples for a content and calls.
func spoken(content string, calls [][2]string) []int32 {
	ids := bytesOf(content)
	for _, c := range calls {
		ids = append(ids, bytesOf("<"+c[0]+" "+c[1]+">")...)
	}
	return ids
}

func calls(m message) (all [][2]string) {
	list, _ := m["tool_calls"].([]any)
	for _, c := range list {
		f := c.(map[string]any)["function"].(map[string]any)
		all = append(all, [2]string{f["name"].(string), f["arguments"].(string)})
	}
	return all
}

func (b *backend) complete(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet { // it says nothing of itself
		http.NotFound(w, r)
		return
	}
	var a ask
	counts := r.URL.Path == "/v1/chat/completions/render"
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || !counts && r.URL.Path != "/v1/chat/completions" {
		b.t.Errorf("%s: %v", r.URL.Path, err)
	}
	if counts {
		b.render(w, a)
		return
	}
	a.leave = r.Context().Done()
	b.mu.Lock()
	n := len(b.asks)
	b.asks = append(b.asks, a)
	b.mu.Unlock()
	s := b.next(n, a)
	for k, v := range s.header {
		w.Header().Set(k, v)
	}
	if s.status != 0 || s.raw != "" {
		w.WriteHeader(max(s.status, http.StatusOK))
		fmt.Fprint(w, s.raw)
		return
	}
	body := b.answer(a, s)
	if a.Stream {
		b.stream(w, body, s)
		return
	}
	if s.cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.Write(body[:len(body)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
}

// uncounts lets it answer with a status who asks for a number of tokens, which 0 counts.
func (b *backend) uncounts(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncounting = status
}

// render answers with the tokens of a chat.
func (b *backend) render(w http.ResponseWriter, a ask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uncounting != 0 {
		w.WriteHeader(b.uncounting)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"token_ids": promptOf(a)})
}

// stream sends an answer as vLLM does, in chunks.
func (b *backend) stream(w http.ResponseWriter, body []byte, s said) {
	chunks, err := tokenstest.Chunks(body, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		b.t.Error(err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	sent, ends := "", len(chunks)-3 // what ended the answer, the usage, and that it is done
	for i, data := range chunks {
		if s.cut && i == ends {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
		if sent += data; s.between != nil && i < ends {
			s.between(sent)
		}
	}
}

func (b *backend) answer(a ask, s said) []byte {
	var prompt []int32
	for _, m := range a.Messages {
		prompt = append(prompt, template(m)...)
	}
	prompt = append(append(prompt, begins), bytesOf("assistant:")...)
	var ids []int32
	if !s.textOnly {
		ids = append(spoken(s.content, s.calls), ends)
	}
	logprobs := make([]map[string]any, len(ids))
	for i, id := range ids {
		logprobs[i] = map[string]any{"token": string(rune(id)), "logprob": -float64(i%7) / 8, "bytes": nil,
			"top_logprobs": []any{}}
	}
	toolCalls := []any{}
	for i, c := range s.calls {
		toolCalls = append(toolCalls, map[string]any{"id": fmt.Sprintf("call-%d-%d", len(a.Messages), i),
			"type": "function", "function": map[string]any{"name": c[0], "arguments": c[1]}})
	}
	reason := s.reason
	if reason == "" {
		reason = "stop"
		if len(s.calls) > 0 {
			reason = "tool_calls"
		}
	}
	choice := map[string]any{"index": 0, "finish_reason": reason,
		"message": map[string]any{"role": "assistant", "content": s.content, "tool_calls": toolCalls}}
	if s.thought != "" {
		choice["message"].(map[string]any)["reasoning_content"] = s.thought
	}
	whole := map[string]any{"id": "x", "object": "chat.completion", "model": a.Model, "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": len(prompt), "completion_tokens": len(ids),
			"total_tokens": len(prompt) + len(ids)}}
	if a.IDs && !s.textOnly {
		whole["prompt_token_ids"], choice["token_ids"] = prompt, ids
	}
	if a.Logprobs && !s.textOnly {
		choice["logprobs"] = map[string]any{"content": logprobs}
	}
	if s.beside != nil {
		s.beside(whole, choice, prompt, ids)
	}
	body, err := json.Marshal(whole)
	if err != nil {
		b.t.Error(err)
	}
	return body
}

// counts is a model that counts its answers.
func counts(n int, _ ask) said { return said{content: text(n)} }

// sampled is the text of sampled tokens.
func sampled(ids []int32) string {
	var s strings.Builder
	for _, id := range ids {
		if id < begins {
			s.WriteByte(byte(id))
		}
	}
	return s.String()
}
