package dialects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// Chat is OpenAI's chat completions.
type Chat struct{}

// Bounds of a request.
const (
	maxMessages = 10000
	maxTools    = 1024
)

type chatAsk struct {
	Messages            []json.RawMessage `json:"messages"`
	Tools               []json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls   json.RawMessage   `json:"parallel_tool_calls"`
	Stop                json.RawMessage   `json:"stop"`
	ReasoningEffort     json.RawMessage   `json:"reasoning_effort"`
	ChatTemplateKwargs  json.RawMessage   `json:"chat_template_kwargs"`
	Functions           json.RawMessage   `json:"functions"`
	MaxTokens           *int              `json:"max_tokens"`
	MaxCompletionTokens *int              `json:"max_completion_tokens"`
	N                   *int              `json:"n"`
	Logprobs            bool              `json:"logprobs"`
	TopLogprobs         int               `json:"top_logprobs"`
	ReturnTokenIDs      bool              `json:"return_token_ids"` // as vLLM has it
	Stream              bool              `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// Read implements Dialect.
func (Chat) Read(body []byte) (*Request, error) {
	said, err := fields.Chat.Check(body)
	if err != nil {
		return nil, err
	}
	var c chatAsk
	if err := fields.Decode(body, &c); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	switch {
	case len(c.Messages) == 0 || len(c.Messages) > maxMessages:
		return nil, fmt.Errorf("messages: %d of them, want 1 to %d", len(c.Messages), maxMessages)
	case len(c.Tools) > maxTools:
		return nil, fmt.Errorf("tools: %d of them, at most %d", len(c.Tools), maxTools)
	case c.N != nil && *c.N != 1:
		return nil, fmt.Errorf("n: %d, but a rollout goes on with one answer; start more members of its group", *c.N)
	case len(c.Functions) > 0 && string(c.Functions) != "null":
		return nil, errors.New("functions: give tools instead")
	case c.TopLogprobs > 0:
		return nil, errors.New("top_logprobs: only the sampled tokens' log-probabilities are kept")
	}
	a := &Request{Said: said, Stream: c.Stream, usage: c.StreamOptions.IncludeUsage, logprobs: c.Logprobs,
		tokenIDs: c.ReturnTokenIDs}
	for _, most := range []*int{c.MaxTokens, c.MaxCompletionTokens} {
		if most != nil {
			if *most < 1 {
				return nil, fmt.Errorf("max_tokens: %d, must be positive", *most)
			}
			a.MaxTokens = *most
		}
	}
	var shown gallery
	messages := make([]json.RawMessage, len(c.Messages))
	for i, raw := range c.Messages {
		m, forServer, err := readMessage(raw, &shown)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		messages[i] = forServer
		a.Conversation = append(a.Conversation, m)
	}
	a.Messages, a.Images = messages, shown.files
	var tools json.RawMessage
	for i, raw := range c.Tools {
		var t struct {
			Type string `json:"type"`
		}
		if err := fields.Decode(raw, &t); err != nil {
			return nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		if t.Type != "" && t.Type != functionTool {
			return nil, fmt.Errorf("tools[%d]: type %.40q: chat completions carry functions only", i, t.Type)
		}
	}
	if len(c.Tools) > 0 {
		tools = array(c.Tools)
	}
	constraints := maps.Clone(said)
	maps.DeleteFunc(constraints, func(field string, _ json.RawMessage) bool {
		return !slices.Contains(
			fields.Constraining, field)
	})
	a.Forward = forwarded(map[string]json.RawMessage{
		"messages": array(messages), "tools": tools, "tool_choice": c.ToolChoice,
		"parallel_tool_calls": c.ParallelToolCalls,
		"stop":                c.Stop, "reasoning_effort": c.ReasoningEffort,
		"chat_template_kwargs": c.ChatTemplateKwargs,
	})
	maps.Copy(a.Forward, forwarded(constraints))
	return a, nil
}

// forwarded takes the fields over that a request has.
func forwarded(fields map[string]json.RawMessage) map[string]json.RawMessage {
	kept := map[string]json.RawMessage{}
	for field, value := range fields {
		if len(value) > 0 && string(value) != "null" {
			kept[field] = value
		}
	}
	return kept
}

// messageKeys are those of a message that are read.
var messageKeys = []string{"role", "content", "name", "tool_call_id", "tool_calls", "function_call"}

// readMessage reads what a message says, and writes it anew: the server gets what is on the log.
// Keys that are not read go on as they are, as templates read what they like of them. The role of
// the developer, which templates refuse, or whose words they leave out in silence, is the system's,
// on the log as for the server; arguments that the server could not read are replaced.
func readMessage(raw json.RawMessage, shown *gallery) (m events.PromptMessage, forServer json.RawMessage, err error) {
	if err := fields.Exact(raw, messageKeys...); err != nil {
		return m, nil, err
	}
	var has map[string]json.RawMessage
	if err := json.Unmarshal(raw, &has); err != nil {
		return m, nil, err
	}
	var calls []inference.ToolCall
	for key, into := range map[string]any{"role": &m.Role, "name": &m.Name,
		"tool_call_id": &m.ToolCallID, "tool_calls": &calls} {
		if value, is := has[key]; is {
			if err := fields.Decode(value, into); err != nil {
				return m, nil, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	switch m.Role {
	case "system", "developer", "user", "assistant", "tool":
	default:
		return m, nil, fmt.Errorf("role: %.40q, want system, developer, user, assistant or tool", m.Role)
	}
	if call := has["function_call"]; len(call) > 0 && string(call) != "null" {
		return m, nil, errors.New("function_call: give tool_calls instead")
	}
	if len(m.Name) > maxName || len(m.ToolCallID) > maxName {
		return m, nil, fmt.Errorf("name and tool_call_id: at most %d bytes", maxName)
	}
	said, err := shown.said(m.Role, has["content"])
	if err != nil {
		return m, nil, err
	}
	m.Content, m.Images = said.text, said.images
	if said.parts != nil {
		if has["content"], err = inference.Encode(said.parts); err != nil {
			return m, nil, err
		}
	}
	if m.Role == "developer" {
		m.Role, has["role"] = "system", json.RawMessage(`"system"`)
	}
	for i, c := range calls {
		if c.Type != "" && c.Type != functionTool {
			return m, nil, fmt.Errorf("tool_calls[%d]: type %.40q: chat completions carry calls of functions only", i,
				c.Type)
		}
		m.ToolCalls = append(m.ToolCalls, events.ToolCall{ID: c.ID, Name: c.Function.Name,
			Arguments: string(c.Function.Arguments)})
		calls[i].Type, calls[i].Function.Arguments = functionTool, c.Function.Arguments.ForServer()
	}
	if len(calls) > 0 {
		if has["tool_calls"], err = inference.Encode(calls); err != nil {
			return m, nil, err
		}
	}
	forServer, err = inference.Encode(has)
	return m, forServer, err
}

// array is a list of values as one.
func array(values []json.RawMessage) json.RawMessage {
	size := len("[]") + len(values)
	for _, v := range values {
		size += len(v)
	}
	list := append(make(json.RawMessage, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, v...)
	}
	return append(list, ']')
}

// maxName bounds names and ids in bytes.
const maxName = 128

// textParts are the parts of contents that are text, in one dialect or another.
var textParts = []string{"text", "input_text", "output_text", "summary_text", "reasoning_text"}

// ContentText is what a content says: text, nothing, or a list of parts. A part that is no text is
// refused, unless it is one of those that are passed on, which the text names.
func ContentText(raw json.RawMessage, passed ...string) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var list []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := fields.Decode(raw, &list); err != nil {
		return "", fmt.Errorf("content: want text, null or a list of parts: %w", err)
	}
	var b strings.Builder
	for i, p := range list {
		switch {
		case slices.Contains(textParts, p.Type):
			b.WriteString(p.Text)
		case p.Type == "refusal":
			b.WriteString(p.Refusal)
		case slices.Contains(passed, p.Type):
			fmt.Fprintf(&b, "[%.40s]", p.Type)
		default:
			return "", fmt.Errorf("content[%d]: a part of type %.40q cannot be carried: give text", i, p.Type)
		}
	}
	return b.String(), nil
}

// The answer, whole and in chunks.
type (
	chatAnswer struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"`
		Created int64        `json:"created"`
		Model   string       `json:"model"`
		Choices []chatChoice `json:"choices"`
		Usage   *chatUsage   `json:"usage,omitempty"`
		// PromptTokenIDs are the whole prompt's, where they were asked for.
		PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"`
	}
	chatChoice struct {
		Index        int           `json:"index"`
		Message      *chatMessage  `json:"message,omitempty"`
		Delta        *chatMessage  `json:"delta,omitempty"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
		TokenIDs     []int32       `json:"token_ids,omitempty"`
	}
	chatMessage struct {
		Role      string     `json:"role,omitempty"`
		Content   *string    `json:"content,omitempty"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		ToolCalls []chatCall `json:"tool_calls,omitempty"`
	}
	chatCall struct {
		Index    *int         `json:"index,omitempty"` // in chunks
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	chatLogprobs struct {
		Content []chatLogprob `json:"content"`
	}
	chatLogprob struct {
		Token       string   `json:"token"`
		Logprob     float32  `json:"logprob"`
		Bytes       []int    `json:"bytes"`
		TopLogprobs []string `json:"top_logprobs"`
	}
	chatUsage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
)

func chatHead(n *Answer, object string, choices ...chatChoice) chatAnswer {
	return chatAnswer{ID: "chatcmpl-" + n.ID, Object: object, Created: n.Created.Unix(), Model: n.Model,
		Choices: append([]chatChoice{}, choices...)}
}

func usageOf(n *Answer) *chatUsage {
	return &chatUsage{n.Turn.PromptTokens, n.Turn.CompletionTokens, n.Turn.Used()}
}

// ContentFilter is what a chat's finish_reason says of a turn that a filter cut.
const ContentFilter = "content_filter"

// finishReason is the turn's as OpenAI has it. What nobody knows is told as it is: a harness must
// not take it for the model's end.
func finishReason(n *Answer) string {
	switch reason := n.Turn.FinishReason; reason {
	case events.FinishFiltered:
		return ContentFilter
	case events.FinishRepetition: // it would have gone on
		return events.FinishLength
	default:
		return reason
	}
}

func logprobsOf(a *Request, n *Answer) *chatLogprobs {
	texts := n.Texts
	if texts == nil && a.tokenIDs { // some servers give ids alone
		for _, id := range n.Turn.TokenIDs {
			texts = append(texts, fmt.Sprintf("token_id:%d", id))
		}
	}
	if !a.logprobs || n.Turn.TextOnly || texts == nil {
		return nil
	}
	l := &chatLogprobs{Content: []chatLogprob{}}
	for i, text := range texts {
		l.Content = append(l.Content, chatLogprob{Token: text, Logprob: n.Turn.Logprobs[i], TopLogprobs: []string{}})
	}
	return l
}

// Whole implements Dialect.
func (Chat) Whole(a *Request, n *Answer) any {
	reason, content := finishReason(n), n.Turn.Content
	message := &chatMessage{Role: "assistant", Content: &content, Reasoning: n.Reasoning}
	for _, c := range n.Turn.ToolCalls {
		message.ToolCalls = append(message.ToolCalls, chatCall{ID: c.ID, Type: "function",
			Function: chatFunction{c.Name, c.Arguments}})
	}
	whole := chatHead(n, "chat.completion", chatChoice{Message: message, Logprobs: logprobsOf(a, n),
		FinishReason: &reason})
	if a.tokenIDs && !n.Turn.TextOnly {
		whole.PromptTokenIDs, whole.Choices[0].TokenIDs = n.Prompt, n.Turn.TokenIDs
	}
	whole.Usage = usageOf(n)
	return whole
}

// chatStream is an answer in chunks.
type chatStream struct {
	told
	a    *Request
	send func(Piece)
}

// Stream implements Dialect.
func (Chat) Stream(a *Request, head *Answer, send func(Piece)) Stream {
	s := &chatStream{told{head: head}, a, send}
	s.chunk(chatMessage{Role: "assistant", Content: new(string)}, nil, nil)
	return s
}

func (s *chatStream) chunk(delta chatMessage, logprobs *chatLogprobs, reason *string) {
	s.send(Piece{Data: chatHead(s.head, "chat.completion.chunk",
		chatChoice{Delta: &delta, Logprobs: logprobs, FinishReason: reason})})
}

// Reason implements Stream.
func (s *chatStream) Reason(text string) {
	s.reasoning.WriteString(text)
	for part := range parts(text) {
		s.chunk(chatMessage{Reasoning: part}, nil, nil)
	}
}

// Say implements Stream.
func (s *chatStream) Say(text string) {
	s.content.WriteString(text)
	for part := range parts(text) {
		s.chunk(chatMessage{Content: &part}, nil, nil)
	}
}

// End implements Stream.
func (s *chatStream) End(n *Answer) error {
	n, err := s.rest(s, n)
	if err != nil {
		return err
	}
	for i, c := range n.Turn.ToolCalls {
		s.chunk(chatMessage{ToolCalls: []chatCall{{Index: &i, ID: c.ID, Type: "function",
			Function: chatFunction{Name: c.Name}}}}, nil, nil)
		for text := range parts(c.Arguments) {
			s.chunk(chatMessage{ToolCalls: []chatCall{{Index: &i, Function: chatFunction{Arguments: text}}}}, nil, nil)
		}
	}
	reason := finishReason(n)
	s.chunk(chatMessage{}, logprobsOf(s.a, n), &reason)
	if s.a.usage {
		last := chatHead(s.head, "chat.completion.chunk")
		last.Usage = usageOf(n)
		s.send(Piece{Data: last})
	}
	s.send(Piece{Data: "[DONE]"})
	return nil
}

// Failure implements Dialect.
func (Chat) Failure(f Failure) Piece {
	kind := "invalid_request_error"
	switch {
	case f.Status == 429:
		kind = "rate_limit_error"
	case f.Status == 401:
		kind = "authentication_error"
	case f.Status >= 500:
		kind = "server_error"
	}
	return Piece{Data: map[string]any{"error": map[string]any{"message": f.Message, "type": kind,
		"param": nil, "code": f.Code}}}
}
