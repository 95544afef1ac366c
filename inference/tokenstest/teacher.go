package tokenstest

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Teacher is a server that scores prompts as vLLM 0.33's /v1/completions and
// SGLang 0.5.23's /generate do.
type Teacher struct {
	*httptest.Server
	// Status, if set, is asked what to answer before anything else; 0 answers.
	Status func() int
	// Entries, if set, changes what is said of each token: a list of {id: {logprob}} or of
	// [logprob, id, text], null for the first.
	Entries func(list []any) []any

	mu      sync.Mutex
	prompts [][]int32
	keys    []string
}

// NewTeacher starts one that ends with the test.
func NewTeacher(t testing.TB) *Teacher {
	teacher := &Teacher{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Model          string  `json:"model"`
			Prompt         []int32 `json:"prompt"`
			MaxTokens      int     `json:"max_tokens"`
			PromptLogprobs *int    `json:"prompt_logprobs"`
		}
		if !teacher.read(t, w, r, &in, func() []int32 { return in.Prompt }) {
			return
		}
		if in.MaxTokens < 1 || in.PromptLogprobs == nil {
			t.Errorf("max_tokens %d, prompt_logprobs %v", in.MaxTokens, in.PromptLogprobs)
		}
		list := make([]any, len(in.Prompt))
		for i, id := range in.Prompt {
			if i > 0 {
				list[i] = map[string]any{strconv.Itoa(int(id)): map[string]any{"logprob": TeacherLogprob(in.Prompt, i),
					"rank": 1, "decoded_token": "x"}}
			}
		}
		answer(w, map[string]any{"model": in.Model, "choices": []any{map[string]any{"index": 0, "text": "x",
			"finish_reason": "length", "prompt_logprobs": teacher.change(list)}}})
	})
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			IDs      []int32 `json:"input_ids"`
			Logprobs bool    `json:"return_logprob"`
			From     *int    `json:"logprob_start_len"`
		}
		if !teacher.read(t, w, r, &in, func() []int32 { return in.IDs }) {
			return
		}
		if !in.Logprobs || in.From == nil || *in.From != 0 {
			t.Errorf("return_logprob %v, logprob_start_len %v", in.Logprobs, in.From)
		}
		list := make([]any, len(in.IDs))
		for i, id := range in.IDs {
			list[i] = []any{nil, id, nil}
			if i > 0 {
				list[i] = []any{TeacherLogprob(in.IDs, i), id, nil}
			}
		}
		answer(w, map[string]any{"text": "", "meta_info": map[string]any{"weight_version": "v7",
			"input_token_logprobs": teacher.change(list)}})
	})
	mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Prompt  string `json:"prompt"`
			Special *bool  `json:"add_special_tokens"`
		}
		if !teacher.read(t, w, r, &in, func() []int32 { return TeacherTokens(in.Prompt) }) {
			return
		}
		if in.Special == nil || *in.Special {
			t.Error("add_special_tokens is not false")
		}
		answer(w, map[string]any{"count": len(in.Prompt), "max_model_len": 4096, "tokens": TeacherTokens(in.Prompt)})
	})
	teacher.Server = httptest.NewServer(mux)
	t.Cleanup(teacher.Close)
	return teacher
}

// TeacherLogprob is how likely the server finds the i-th of some tokens: it depends on all
// before it, as a model's does.
func TeacherLogprob(ids []int32, i int) float32 {
	sum := 0.0
	for k, id := range ids[:i+1] {
		sum += float64(id) * float64(k+1)
	}
	return -float32(math.Mod(sum, 97)) / 16
}

// TeacherTokens are what the server makes of a text: one for each byte.
func TeacherTokens(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids
}

func (s *Teacher) read(t testing.TB, w http.ResponseWriter, r *http.Request, in any, prompt func() []int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if err := json.NewDecoder(r.Body).Decode(in); err != nil {
		t.Error(err)
	}
	s.prompts = append(s.prompts, prompt())
	if s.Status != nil {
		if status := s.Status(); status != 0 {
			w.WriteHeader(status)
			return false
		}
	}
	return true
}

func (s *Teacher) change(list []any) []any {
	if s.Entries == nil {
		return list
	}
	return s.Entries(list)
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// Prompts are those that it was asked about.
func (s *Teacher) Prompts() [][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]int32(nil), s.prompts...)
}

// Keys are those that it was shown.
func (s *Teacher) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}
