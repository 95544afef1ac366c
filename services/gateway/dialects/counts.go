package dialects

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// Counting is a dialect's request for the number of tokens that a request has.
type Counting interface {
	Dialect
	// Counted is the answer.
	Counted(tokens int) any
}

// MessagesCount is Anthropic's count_tokens. A request is one of messages, which need not say
// how long the answer may be.
type MessagesCount struct{ Messages }

// Read implements Dialect.
func (MessagesCount) Read(body []byte) (*Request, error) { return readMessages(body, 0) }

// Counted implements Counting.
func (MessagesCount) Counted(tokens int) any { return map[string]int{"input_tokens": tokens} }

// GeminiCount is Gemini's countTokens.
type GeminiCount struct{ Gemini }

// Read implements Dialect. A request is a conversation alone, or holds one of generateContent,
// which names its model again.
func (g GeminiCount) Read(body []byte) (*Request, error) {
	var in struct {
		Contents json.RawMessage `json:"contents"`
		Request  json.RawMessage `json:"generateContentRequest"`
	}
	err := readObject(body, []string{"contents", "generateContentRequest"}, &in)
	switch {
	case err != nil:
		return nil, err
	case len(in.Contents) > 0 && len(in.Request) > 0:
		return nil, errors.New("contents, generateContentRequest: want one of them")
	case len(in.Request) == 0:
		return g.Gemini.Read(body)
	}
	read, err := g.read(in.Request, fields.GeminiCount)
	if err != nil {
		return nil, fmt.Errorf("generateContentRequest: %w", err)
	}
	return read, nil
}

// Counted implements Counting.
func (GeminiCount) Counted(tokens int) any { return map[string]int{"totalTokens": tokens} }
