package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/rondo-rl/rondo/demo/policy"
)

// Limits of a request. A conversation of the built-in policy is far below them.
const (
	maxBody     = 16 << 20
	maxMessages = 10000
	maxTools    = 256
	maxModel    = 256 // bytes of a model's name
)

type completionRequest struct {
	Model    string        `json:"model"`
	Messages []wireMessage `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Temperature         *float64 `json:"temperature"`
	MaxTokens           int      `json:"max_tokens"`
	MaxCompletionTokens int      `json:"max_completion_tokens"`
	Seed                *int64   `json:"seed"`
	N                   *int     `json:"n"`
	Stream              bool     `json:"stream"`
	Logprobs            bool     `json:"logprobs"`
	ReturnTokenIDs      bool     `json:"return_token_ids"`
	ReturnMetaInfo      bool     `json:"return_meta_info"`
}

// wireMessage is a message as clients send it: the content may be text, null,
// or a list of text parts.
type wireMessage struct {
	policy.Message
	Content content `json:"content"`
}

type content string

func (c *content) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*c = content(*text)
		}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return errors.New("content: want text, null or a list of text parts")
	}
	for _, part := range parts {
		if part.Type != "text" {
			return fmt.Errorf("content: a part of type %.40q: only text can be read", part.Type)
		}
		*c += content(part.Text)
	}
	return nil
}

func readRequest(body io.Reader) (completionRequest, error) {
	var request completionRequest
	decoder := json.NewDecoder(body)
	if err := decoder.Decode(&request); err != nil {
		return request, fmt.Errorf("read request: %w", err)
	}
	return request, request.check()
}

func (r *completionRequest) check() error {
	switch {
	case len(r.Messages) == 0:
		return errors.New("messages: there is none")
	case len(r.Messages) > maxMessages:
		return fmt.Errorf("messages: %d, at most %d are allowed", len(r.Messages), maxMessages)
	case len(r.Tools) > maxTools:
		return fmt.Errorf("tools: %d, at most %d are allowed", len(r.Tools), maxTools)
	case len(r.Model) > maxModel:
		return fmt.Errorf("model: a name of %d bytes, at most %d are allowed", len(r.Model), maxModel)
	case r.Stream:
		return errors.New("stream: not supported")
	case r.N != nil && *r.N != 1:
		return fmt.Errorf("n: %d, only 1 is supported", *r.N)
	case r.MaxTokens < 0 || r.MaxCompletionTokens < 0:
		return errors.New("max_tokens: must not be negative")
	case r.Temperature != nil && !(*r.Temperature >= 0 && *r.Temperature <= 100):
		return fmt.Errorf("temperature: %g, want 0 to 100", *r.Temperature)
	}
	for i := range r.Tools {
		if name := r.Tools[i].Function.Name; name == "" || len(name) > 64 || strings.ContainsAny(name, "\n\r") {
			return fmt.Errorf("tools[%d].function.name: %.80q, want 1 to 64 characters on one line", i, name)
		}
	}
	for i := range r.Messages {
		switch m := &r.Messages[i]; {
		case m.Role == "tool" && m.ToolCallID == "":
			return fmt.Errorf("messages[%d].tool_call_id: missing", i)
		case m.Role != "tool" && m.Role != "system" && m.Role != "developer" &&
			m.Role != "user" && m.Role != "assistant":
			return fmt.Errorf("messages[%d].role: %.40q, want system, developer, user, assistant or tool", i, m.Role)
		}
	}
	return nil
}

// prompt is what the request asks of a model. Without a seed it draws one, so
// that equal requests differ.
func (r *completionRequest) prompt() policy.Prompt {
	p := policy.Prompt{Temperature: 1, MaxTokens: r.MaxTokens, Messages: make([]policy.Message, len(r.Messages))}
	if r.MaxCompletionTokens > 0 {
		p.MaxTokens = r.MaxCompletionTokens
	}
	if r.Temperature != nil {
		p.Temperature = *r.Temperature
	}
	if p.Seed = rand.Uint64(); r.Seed != nil {
		p.Seed = uint64(*r.Seed)
	}
	for i := range r.Messages {
		p.Messages[i] = r.Messages[i].Message
		p.Messages[i].Content = string(r.Messages[i].Content)
	}
	for i := range r.Tools {
		p.Tools = append(p.Tools, r.Tools[i].Function.Name)
	}
	return p
}

// refuse answers a wrong request as OpenAI does.
func refuse(w http.ResponseWriter, err error) {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuseWith(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit))
		return
	}
	refuseWith(w, http.StatusBadRequest, err.Error())
}

func refuseWith(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message,
		"type": "invalid_request_error", "param": nil, "code": nil}})
}

func unknownPath(w http.ResponseWriter, r *http.Request) {
	refuseWith(w, http.StatusNotFound,
		fmt.Sprintf("no %s %.200s here: there are POST /v1/chat/completions, GET /v1/models and GET /health", r.Method,
			r.URL.Path))
}
