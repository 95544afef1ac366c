package dialects

import (
	"encoding/json"
	"net/http"

	"github.com/rondo-rl/rondo/events"
)

// The answer's parts.
type (
	geminiAnswer struct {
		Candidates []geminiCandidate `json:"candidates"`
		Usage      *geminiUsage      `json:"usageMetadata,omitempty"`
		Model      string            `json:"modelVersion"`
		ID         string            `json:"responseId"`
	}
	geminiCandidate struct {
		Content       geminiSaid `json:"content"`
		FinishReason  string     `json:"finishReason,omitempty"`
		FinishMessage string     `json:"finishMessage,omitempty"`
		Index         int        `json:"index"`
	}
	geminiSaid struct {
		Role  string `json:"role"`
		Parts []any  `json:"parts"`
	}
	geminiText struct {
		Text    string `json:"text"`
		Thought bool   `json:"thought,omitempty"`
	}
	geminiCall struct {
		FunctionCall geminiCalled `json:"functionCall"`
	}
	geminiCalled struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}
	geminiUsage struct {
		Prompt     int `json:"promptTokenCount"`
		Candidates int `json:"candidatesTokenCount"`
		Total      int `json:"totalTokenCount"`
	}
)

func geminiHead(n *Answer, parts ...any) geminiAnswer {
	return geminiAnswer{Candidates: []geminiCandidate{{Content: geminiSaid{"model", parts}}}, Model: n.Model, ID: n.ID}
}

// geminiReasons are Gemini's words. Calls have none of their own.
var geminiReasons = map[string]string{"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS",
	ContentFilter: "SAFETY"}

// end says how a turn ended, and what it took. An end for which Gemini has no word is OTHER: no
// client takes that for an end that the model chose.
func (m *geminiAnswer) end(n *Answer) {
	c, reason := &m.Candidates[0], finishReason(n)
	if c.FinishReason = geminiReasons[reason]; c.FinishReason == "" {
		c.FinishReason, c.FinishMessage = "OTHER", reason
	}
	m.Usage = &geminiUsage{n.Turn.PromptTokens, n.Turn.CompletionTokens, n.Turn.Used()}
}

// Whole implements Dialect.
func (Gemini) Whole(a *Request, n *Answer) any {
	var said []any
	if a.thoughts && n.Reasoning != "" {
		said = append(said, geminiText{n.Reasoning, true})
	}
	if n.Turn.Content != "" {
		said = append(said, geminiText{Text: n.Turn.Content})
	}
	for _, c := range n.Turn.ToolCalls {
		said = append(said, callPart(c))
	}
	if said == nil {
		said = []any{geminiText{}}
	}
	m := geminiHead(n, said...)
	m.end(n)
	return m
}

func callPart(c events.ToolCall) geminiCall { return geminiCall{geminiCalled{c.ID, c.Name, input(c)}} }

// geminiStream is an answer in parts, each a whole answer of its own.
type geminiStream struct {
	told
	thoughts bool
	send     func(Piece)
}

// Stream implements Dialect.
func (Gemini) Stream(a *Request, head *Answer, send func(Piece)) Stream {
	return &geminiStream{told{head: head}, a.thoughts, send}
}

// Reason implements Stream.
func (s *geminiStream) Reason(text string) {
	if !s.thoughts {
		return
	}
	s.reasoning.WriteString(text)
	for part := range parts(text) {
		s.send(Piece{Data: geminiHead(s.head, geminiText{part, true})})
	}
}

// Say implements Stream.
func (s *geminiStream) Say(text string) {
	s.content.WriteString(text)
	for part := range parts(text) {
		s.send(Piece{Data: geminiHead(s.head, geminiText{Text: part})})
	}
}

// End implements Stream.
func (s *geminiStream) End(n *Answer) error {
	n, err := s.rest(s, n)
	if err != nil {
		return err
	}
	for _, c := range n.Turn.ToolCalls {
		s.send(Piece{Data: geminiHead(n, callPart(c))})
	}
	last := geminiHead(n, geminiText{})
	last.end(n)
	s.send(Piece{Data: last})
	return nil
}

// geminiStates are the protocol's words for what went wrong.
var geminiStates = map[int]string{
	http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED",
	http.StatusNotFound: "NOT_FOUND", http.StatusConflict: "FAILED_PRECONDITION",
	http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusGatewayTimeout: "DEADLINE_EXCEEDED",
	http.StatusBadGateway: "UNAVAILABLE", http.StatusServiceUnavailable: "UNAVAILABLE",
}

// Failure implements Dialect.
func (Gemini) Failure(f Failure) Piece {
	state := geminiStates[f.Status]
	switch {
	case state != "":
	case f.Status >= http.StatusInternalServerError:
		state = "INTERNAL"
	default:
		state = "INVALID_ARGUMENT"
	}
	return Piece{Data: map[string]any{"error": map[string]any{"code": f.Status, "message": f.Message, "status": state}}}
}
