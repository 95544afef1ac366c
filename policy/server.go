package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a request. A conversation of the built-in policy is far below them.
const (
	maxBody     = 16 << 20
	maxMessages = 10000
	maxPolicies = 1000
)

// Server serves the policy as an OpenAI-compatible endpoint, with token ids and log-probabilities as vLLM gives
// them (return_token_ids, logprobs) and the version of the weights. A model is a policy's name; a name that no
// weights were loaded for is the initial policy, version 0.
type Server struct {
	mux     *http.ServeMux
	answers atomic.Int64

	mu       sync.RWMutex
	policies map[string]loaded
}

// loaded is one version of a policy. It is replaced as a whole.
type loaded struct {
	version int64
	model   *Model
}

// NewServer makes a server without any weights.
func NewServer() *Server {
	s := &Server{mux: http.NewServeMux(), policies: map[string]loaded{}}
	s.mux.HandleFunc("POST /v1/chat/completions", s.complete)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Load replaces a policy's weights by a safetensors file. Requests under way finish with the version they began
// with; an older version than the loaded one is ignored.
func (s *Server) Load(policy string, version int64, file []byte) error {
	model, err := ReadModel(file)
	if err != nil {
		return fmt.Errorf("load version %d of policy %s: %w", version, policy, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.policies[policy]
	if !ok && len(s.policies) >= maxPolicies {
		return fmt.Errorf("load policy %s: %d policies are loaded, the limit", policy, maxPolicies)
	}
	if !ok || known.version < version {
		s.policies[policy] = loaded{version, model}
	}
	return nil
}

var initial = NewModel()

func (s *Server) policy(name string) loaded {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p, ok := s.policies[name]; ok {
		return p
	}
	return loaded{0, initial}
}

type completionRequest struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Temperature *float64 `json:"temperature"`
	MaxTokens   int      `json:"max_tokens"`
	Seed        int64    `json:"seed"`
	Stream      bool     `json:"stream"`
}

type completionChoice struct {
	Index        int            `json:"index"`
	Message      Message        `json:"message"`
	FinishReason string         `json:"finish_reason"`
	TokenIDs     []int32        `json:"token_ids"`
	Logprobs     choiceLogprobs `json:"logprobs"`
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
	PromptTokenIDs []int32            `json:"prompt_token_ids"`
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
	p := s.policy(request.Model)
	prompt := Prompt{Messages: request.Messages, Temperature: 1, Seed: uint64(request.Seed), MaxTokens: request.MaxTokens}
	if request.Temperature != nil {
		prompt.Temperature = *request.Temperature
	}
	for _, t := range request.Tools {
		prompt.Tools = append(prompt.Tools, t.Function.Name)
	}
	a, err := p.model.Generate(prompt)
	if err != nil {
		refuse(w, err)
		return
	}
	choice := completionChoice{
		Message:      Message{Role: "assistant", Content: a.Content, ToolCalls: a.ToolCalls},
		FinishReason: a.FinishReason, TokenIDs: a.TokenIDs,
		Logprobs: choiceLogprobs{Content: make([]tokenLogprob, len(a.TokenIDs))},
	}
	for i, token := range a.TokenIDs {
		choice.Logprobs.Content[i] = tokenLogprob{Token: TokenText(token), Logprob: a.Logprobs[i]}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(completion{
		ID: fmt.Sprintf("chatcmpl-%d", s.answers.Add(1)), Object: "chat.completion", Created: time.Now().Unix(), Model: request.Model,
		WeightVersion: p.version, PromptTokenIDs: a.PromptTokenIDs, Choices: []completionChoice{choice},
		Usage: tokenUsage{len(a.PromptTokenIDs), len(a.TokenIDs), len(a.PromptTokenIDs) + len(a.TokenIDs)},
	})
}

func readRequest(body io.Reader) (completionRequest, error) {
	var request completionRequest
	if err := json.NewDecoder(body).Decode(&request); err != nil {
		return request, fmt.Errorf("read request: %w", err)
	}
	switch {
	case len(request.Messages) == 0:
		return request, errors.New("messages: there is none")
	case len(request.Messages) > maxMessages:
		return request, fmt.Errorf("messages: %d, at most %d are allowed", len(request.Messages), maxMessages)
	case request.Stream:
		return request, errors.New("stream: not supported")
	case request.Temperature != nil && !(*request.Temperature >= 0 && *request.Temperature <= 100):
		return request, fmt.Errorf("temperature: %g, want 0 to 100", *request.Temperature)
	}
	return request, nil
}

// refuse answers a wrong request as OpenAI does.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	status := http.StatusBadRequest
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": err.Error(), "type": "invalid_request_error"}})
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID            string `json:"id"`
		Object        string `json:"object"`
		WeightVersion int64  `json:"weight_version"`
	}
	list := []model{}
	s.mu.RLock()
	for name, p := range s.policies {
		list = append(list, model{name, "model", p.version})
	}
	s.mu.RUnlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": list})
}
