// Package endpoint serves the built-in policy as an OpenAI-compatible endpoint.
package endpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/demo/policy"
)

const maxPolicies = 1000

// Server serves the policy as an OpenAI-compatible endpoint, with token ids and log-probabilities
// as vLLM gives them (return_token_ids, logprobs) and the version of the weights (also in
// meta_info, where SGLang has it). A model is a policy's name, or NAME@VERSION for a certain
// version of it; a name that no weights were loaded for is the initial policy, version 0.
type Server struct {
	mux     *http.ServeMux
	answers atomic.Int64
	pinned  *pinned

	mu       sync.RWMutex
	policies map[string]loaded
}

// loaded is one version of a policy. It is replaced as a whole.
type loaded struct {
	version int64
	model   *policy.Model
}

// NewServer makes a server without any weights loaded. fetch, which may be nil, reads the
// versions that requests name.
func NewServer(fetch Fetch) *Server {
	s := &Server{mux: http.NewServeMux(), policies: map[string]loaded{}, pinned: newPinned(fetch)}
	s.mux.HandleFunc("POST /v1/chat/completions", s.complete)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("/", unknownPath)
	s.mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Load replaces a policy's weights by a safetensors file. Requests under way finish with the
// version they began with; an older version than the loaded one is ignored.
func (s *Server) Load(name string, version int64, file []byte) error {
	model, err := policy.ReadModel(file)
	if err != nil {
		return fmt.Errorf("load version %d of policy %s: %w", version, name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.policies[name]
	if !ok && len(s.policies) >= maxPolicies {
		return fmt.Errorf("load policy %s: %d policies are loaded, the limit", name, maxPolicies)
	}
	if !ok || known.version < version {
		s.policies[name] = loaded{version, model}
	}
	return nil
}

var initial = policy.NewModel()

func (s *Server) policy(name string) loaded {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p, ok := s.policies[name]; ok {
		return p
	}
	return loaded{0, initial}
}

type completionChoice struct {
	Index        int             `json:"index"`
	Message      policy.Message  `json:"message"`
	FinishReason string          `json:"finish_reason"`
	TokenIDs     []int32         `json:"token_ids,omitempty"`
	Logprobs     *choiceLogprobs `json:"logprobs"`
	MetaInfo     *metaInfo       `json:"meta_info,omitempty"`
}

// metaInfo is the part of SGLang's meta_info that concerns training; the version is text there.
type metaInfo struct {
	WeightVersion    string `json:"weight_version"`
	PromptTokens     int    `json:"prompt_tokens"`
	CompletionTokens int    `json:"completion_tokens"`
}

type choiceLogprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
}

type completion struct {
	ID             string             `json:"id"`
	Object         string             `json:"object"`
	Created        int64              `json:"created"`
	Model          string             `json:"model"`
	WeightVersion  int64              `json:"weight_version"`
	PromptTokenIDs []int32            `json:"prompt_token_ids,omitempty"`
	Choices        []completionChoice `json:"choices"`
	Usage          tokenUsage         `json:"usage"`
}

type tokenUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	request, err := readRequest(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, err)
		return
	}
	p, err := s.model(r.Context(), request.Model)
	if err != nil {
		refuseModel(w, err)
		return
	}
	a, err := p.model.Generate(request.prompt())
	if err != nil {
		refuse(w, err)
		return
	}
	answer := completion{
		ID: fmt.Sprintf("chatcmpl-%d", s.answers.Add(1)), Object: "chat.completion",
		Created: time.Now().Unix(), Model: request.Model,
		WeightVersion: p.version, Choices: []completionChoice{{
			Message:      policy.Message{Role: "assistant", Content: a.Content, ToolCalls: a.ToolCalls},
			FinishReason: a.FinishReason,
		}},
		Usage: tokenUsage{len(a.PromptTokenIDs), len(a.TokenIDs), len(a.PromptTokenIDs) + len(a.TokenIDs)},
	}
	choice := &answer.Choices[0]
	if request.ReturnTokenIDs {
		answer.PromptTokenIDs, choice.TokenIDs = a.PromptTokenIDs, a.TokenIDs
	}
	if request.Logprobs {
		choice.Logprobs = &choiceLogprobs{Content: make([]tokenLogprob, len(a.TokenIDs))}
		for i, token := range a.TokenIDs {
			choice.Logprobs.Content[i] = tokenLogprob{Token: policy.TokenText(token), Logprob: a.Logprobs[i]}
		}
	}
	if request.ReturnMetaInfo {
		choice.MetaInfo = &metaInfo{WeightVersion: strconv.FormatInt(p.version, 10),
			PromptTokens: len(a.PromptTokenIDs), CompletionTokens: len(a.TokenIDs)}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID            string `json:"id"`
		Object        string `json:"object"`
		WeightVersion int64  `json:"weight_version"`
	}
	list := []model{}
	s.mu.RLock()
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		list = append(list, model{name, "model", s.policies[name].version})
	}
	s.mu.RUnlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": list})
}
