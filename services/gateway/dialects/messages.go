package dialects

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// Messages is Anthropic's Messages.
type Messages struct{}

type messagesAsk struct {
	MaxTokens int             `json:"max_tokens"`
	System    json.RawMessage `json:"system"`
	Messages  []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
		Strict      *bool           `json:"strict"`
	} `json:"tools"`
	ToolChoice *struct {
		Type            string `json:"type"`
		Name            string `json:"name"`
		DisableParallel bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	OutputConfig struct {
		Format json.RawMessage `json:"format"`
	} `json:"output_config"`
	OutputFormat  json.RawMessage `json:"output_format"`
	StopSequences []string        `json:"stop_sequences"`
	Stream        bool            `json:"stream"`
}

// messagesBlock is a part of a message.
type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	Source    messagesSource  `json:"source"`
}

// messagesSource is where an image is.
type messagesSource struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

// Read implements Dialect.
func (Messages) Read(body []byte) (*Request, error) { return readMessages(body, 1) }

// readMessages reads a request for an answer of at least so many tokens.
func readMessages(body []byte, least int) (*Request, error) {
	if _, err := fields.Messages.Check(body); err != nil {
		return nil, err
	}
	var m messagesAsk
	if err := fields.Decode(body, &m); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	switch {
	case len(m.Messages) == 0 || len(m.Messages) > maxMessages:
		return nil, fmt.Errorf("messages: %d of them, want 1 to %d", len(m.Messages), maxMessages)
	case len(m.Tools) > maxTools:
		return nil, fmt.Errorf("tools: %d of them, at most %d", len(m.Tools), maxTools)
	case m.MaxTokens < least:
		return nil, fmt.Errorf("max_tokens: %d, must be positive", m.MaxTokens)
	}
	system, err := systemText(m.System)
	if err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	var conversation []spokenMessage
	var shown gallery
	if system != "" {
		conversation = append(conversation, spokenMessage{Role: "system", Content: system})
	}
	for i, in := range m.Messages {
		blocks, err := messagesBlocks(in.Content)
		if err == nil {
			conversation, err = shown.appendBlocks(conversation, in.Role, blocks)
		}
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	var tools []inference.Tool
	for i, t := range m.Tools {
		if t.Type != "" && t.Type != "custom" {
			return nil, fmt.Errorf("tools[%d]: type %.40q: only tools that the client runs itself", i, t.Type)
		}
		tools = append(tools, inference.Tool{Type: "function",
			Function: inference.Description{Name: t.Name, Description: t.Description,
				Parameters: parameters(t.InputSchema), Strict: t.Strict}})
	}
	extra := map[string]any{}
	if len(m.StopSequences) > 0 {
		extra["stop"] = m.StopSequences
	}
	if c := m.ToolChoice; c != nil {
		if c.DisableParallel {
			extra["parallel_tool_calls"] = false
		}
		if extra["tool_choice"], err = messagesChoice(c.Type, c.Name); err != nil {
			return nil, err
		}
	}
	for name, raw := range map[string]json.RawMessage{"output_config.format": m.OutputConfig.Format,
		"output_format": m.OutputFormat} {
		format, err := responseFormat(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if format != nil {
			extra["response_format"] = format
		}
	}
	a, err := spokenAsk(conversation, shown, tools, extra)
	if err != nil {
		return nil, err
	}
	a.MaxTokens, a.Stream = m.MaxTokens, m.Stream
	return a, nil
}

// messagesBlocks reads a content: text, or a list of blocks.
func messagesBlocks(raw json.RawMessage) ([]messagesBlock, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []messagesBlock{{Type: "text", Text: text}}, nil
	}
	var blocks []messagesBlock
	if err := fields.Decode(raw, &blocks); err != nil {
		return nil, fmt.Errorf("content: want text or a list of blocks: %w", err)
	}
	return blocks, nil
}

// billing begins a line that Claude Code puts before its system prompt, with another value in each
// request. It is not for the model: no prompt would repeat the one before.
const billing = "x-anthropic-billing-header:"

// systemText is what a system prompt says to the model.
func systemText(raw json.RawMessage) (string, error) {
	var blocks []json.RawMessage
	if json.Unmarshal(raw, &blocks) == nil {
		kept := slices.DeleteFunc(blocks, func(block json.RawMessage) bool {
			var b messagesBlock
			return json.Unmarshal(block, &b) == nil && strings.HasPrefix(b.Text, billing) &&
				!strings.Contains(strings.TrimSpace(b.Text), "\n")
		})
		raw = array(kept)
	}
	text, err := ContentText(raw)
	if strings.HasPrefix(text, billing) {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text, err
}

// appendBlocks turns one message into those of a chat: results of tools are messages of their own
// there, and come before what the user says beside them.
func (g *gallery) appendBlocks(conversation []spokenMessage, role string,
	blocks []messagesBlock) ([]spokenMessage, error) {
	switch role {
	case "system", "user", "assistant": // agents put further words of the system among the messages
	default:
		return nil, fmt.Errorf("role: %.40q, want system, user or assistant", role)
	}
	m := spokenMessage{Role: role}
	var w words
	said := false
	for i, b := range blocks {
		switch {
		case b.Type == "text":
			w.say(b.Text)
			said = true
		case b.Type == "image" && role == "user":
			if err := g.takeBlock(&w, b); err != nil {
				return nil, fmt.Errorf("content[%d]: %w", i, err)
			}
			said = true
		case b.Type == "tool_result" && role == "user":
			result, err := g.result(b.Content)
			if err != nil {
				return nil, fmt.Errorf("content[%d]: %w", i, err)
			}
			conversation = append(conversation, spokenMessage{Role: "tool", ToolCallID: b.ToolUseID}.with(result))
		case b.Type == "tool_use" && role == "assistant":
			m.ToolCalls = append(m.ToolCalls, inference.ToolCall{ID: b.ID, Type: "function",
				Function: inference.Function{Name: b.Name, Arguments: inference.Arguments(b.Input)}})
		case b.Type == "thinking" && role == "assistant":
			m.Reasoning += b.Thinking
		default:
			return nil, fmt.Errorf(
				"content[%d]: a block of type %.40q in a message of role %s cannot be carried to a chat", i, b.Type,
				role)
		}
	}
	if m = m.with(w.content()); said || role == "assistant" {
		conversation = append(conversation, m)
	}
	return conversation, nil
}

// takeBlock takes a block with an image in.
func (g *gallery) takeBlock(w *words, b messagesBlock) error {
	if b.Source.Type != "base64" {
		return fmt.Errorf("source: type %.40q: give the image itself, as base64, since nothing fixes what is elsewhere",
			b.Source.Type)
	}
	return g.take(w, b.Source.Data)
}

// result is what a tool has answered: text, or blocks of text and images.
func (g *gallery) result(raw json.RawMessage) (content, error) {
	var blocks []messagesBlock
	if len(raw) == 0 || raw[0] != '[' {
		text, err := ContentText(raw)
		return content{text: text}, err
	}
	if err := fields.Decode(raw, &blocks); err != nil {
		return content{}, fmt.Errorf("content: want text or a list of blocks: %w", err)
	}
	var w words
	for i, b := range blocks {
		switch b.Type {
		case "text":
			w.say(b.Text)
		case "image":
			if err := g.takeBlock(&w, b); err != nil {
				return content{}, fmt.Errorf("content[%d]: %w", i, err)
			}
		default:
			return content{}, fmt.Errorf("content[%d]: a block of type %.40q cannot be carried: give text or images", i,
				b.Type)
		}
	}
	return w.content(), nil
}

func messagesChoice(kind, tool string) (any, error) {
	switch kind {
	case "auto", "none":
		return kind, nil
	case "any":
		return "required", nil
	case "tool":
		return map[string]any{"type": "function", "function": map[string]string{"name": tool}}, nil
	}
	return nil, fmt.Errorf("tool_choice: type %.40q, want auto, any, tool or none", kind)
}

// The answer's parts.
type (
	messagesAnswer struct {
		ID           string        `json:"id"`
		Type         string        `json:"type"`
		Role         string        `json:"role"`
		Model        string        `json:"model"`
		Content      []any         `json:"content"`
		StopReason   *string       `json:"stop_reason"`
		StopSequence *string       `json:"stop_sequence"`
		Usage        messagesUsage `json:"usage"`
	}
	messagesUsage struct {
		InputTokens  int `json:"input_tokens"`
		OutputTokens int `json:"output_tokens"`
	}
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingBlock struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	toolBlock struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
)

func messagesHead(n *Answer) messagesAnswer {
	return messagesAnswer{
		ID: "msg_" + n.ID, Type: "message", Role: "assistant", Model: n.Model, Content: []any{},
		Usage: messagesUsage{n.Turn.PromptTokens, n.Turn.CompletionTokens},
	}
}

// stopReasons are Anthropic's words; what has none is told as it is.
var stopReasons = map[string]string{
	events.FinishStop: "end_turn", events.FinishLength: "max_tokens", events.FinishToolCalls: "tool_use",
	ContentFilter: "refusal",
}

func stopReason(n *Answer) *string {
	reason := finishReason(n)
	reason = cmp.Or(stopReasons[reason], reason)
	return &reason
}

// input is a call's arguments as a JSON object.
func input(c events.ToolCall) json.RawMessage {
	return json.RawMessage(inference.Arguments(c.Arguments).ForServer())
}

// Whole implements Dialect.
func (Messages) Whole(_ *Request, n *Answer) any {
	m := messagesHead(n)
	m.StopReason = stopReason(n)
	if n.Reasoning != "" {
		m.Content = append(m.Content, thinkingBlock{Type: "thinking", Thinking: n.Reasoning})
	}
	if n.Turn.Content != "" {
		m.Content = append(m.Content, textBlock{"text", n.Turn.Content})
	}
	for _, c := range n.Turn.ToolCalls {
		m.Content = append(m.Content, toolBlock{"tool_use", c.ID, c.Name, input(c)})
	}
	return m
}

// messagesStream is an answer in blocks, one after the other.
type messagesStream struct {
	told
	send  func(Piece)
	index int
	open  string // the type of the block that is open, "" for none
}

// Stream implements Dialect.
func (Messages) Stream(_ *Request, head *Answer, send func(Piece)) Stream {
	s := &messagesStream{told: told{head: head}, send: send}
	m := messagesHead(head)
	m.Usage.OutputTokens = 0
	s.event("message_start", map[string]any{"message": m})
	return s
}

func (s *messagesStream) event(name string, data map[string]any) {
	data["type"] = name
	s.send(Piece{Name: name, Data: data})
}

// begin opens a block, unless one of its type is open.
func (s *messagesStream) begin(kind string, start any) {
	if s.open == kind {
		return
	}
	s.stop()
	s.open = kind
	s.event("content_block_start", map[string]any{"index": s.index, "content_block": start})
}

func (s *messagesStream) delta(kind, field, text string) {
	for part := range parts(text) {
		s.event("content_block_delta", map[string]any{"index": s.index,
			"delta": map[string]string{"type": kind, field: part}})
	}
}

func (s *messagesStream) stop() {
	if s.open != "" {
		s.event("content_block_stop", map[string]any{"index": s.index})
		s.index++
		s.open = ""
	}
}

// Reason implements Stream.
func (s *messagesStream) Reason(text string) {
	s.reasoning.WriteString(text)
	s.begin("thinking", thinkingBlock{Type: "thinking"})
	s.delta("thinking_delta", "thinking", text)
}

// Say implements Stream.
func (s *messagesStream) Say(text string) {
	s.content.WriteString(text)
	s.begin("text", textBlock{Type: "text"})
	s.delta("text_delta", "text", text)
}

// End implements Stream.
func (s *messagesStream) End(n *Answer) error {
	n, err := s.rest(s, n)
	if err != nil {
		return err
	}
	s.stop()
	for _, c := range n.Turn.ToolCalls {
		s.begin("tool_use", toolBlock{"tool_use", c.ID, c.Name, json.RawMessage("{}")})
		s.delta("input_json_delta", "partial_json", string(input(c)))
		s.stop()
	}
	s.event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": stopReason(n), "stop_sequence": nil},
		"usage": messagesUsage{n.Turn.PromptTokens, n.Turn.CompletionTokens},
	})
	s.event("message_stop", map[string]any{})
	return nil
}

// Failure implements Dialect.
func (Messages) Failure(f Failure) Piece {
	kind := "invalid_request_error"
	switch {
	case f.Status == 401:
		kind = "authentication_error"
	case f.Status == 404:
		kind = "not_found_error"
	case f.Status == 413:
		kind = "request_too_large"
	case f.Status == 429:
		kind = "rate_limit_error"
	case f.Status >= 500:
		kind = "api_error"
	}
	return Piece{Name: "error", Data: map[string]any{"type": "error",
		"error": map[string]string{"type": kind, "message": f.Message}}}
}
