package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// responsesDialect is OpenAI's Responses, for clients that send the whole conversation each time.
type responsesDialect struct{}

type responsesAsk struct {
	Input        json.RawMessage `json:"input"`
	Instructions string          `json:"instructions"`
	Previous     string          `json:"previous_response_id"`
	Conversation json.RawMessage `json:"conversation"`
	MaxTokens    *int            `json:"max_output_tokens"`
	Background   bool            `json:"background"`
	Stream       bool            `json:"stream"`
	Parallel     *bool           `json:"parallel_tool_calls"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Tools        []responsesTool `json:"tools"`
	Text         struct {
		Format json.RawMessage `json:"format"`
	} `json:"text"`
	Reasoning struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// responsesItem is a part of the input.
type responsesItem struct {
	Type      string                  `json:"type"`
	Role      string                  `json:"role"`
	Content   json.RawMessage         `json:"content"`
	CallID    string                  `json:"call_id"`
	Name      string                  `json:"name"`
	Arguments inference.Arguments     `json:"arguments"`
	Output    json.RawMessage         `json:"output"`
	Summary   []struct{ Text string } `json:"summary"`
}

func (responsesDialect) read(body []byte) (*ask, error) {
	var r responsesAsk
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	switch {
	case r.Previous != "" || len(r.Conversation) > 0 && string(r.Conversation) != "null":
		return nil, errors.New("previous_response_id, conversation: the gateway keeps no conversations; send all of the input")
	case r.Background:
		return nil, errors.New("background: wait for the answer")
	case r.MaxTokens != nil && *r.MaxTokens < 1:
		return nil, fmt.Errorf("max_output_tokens: %d, must be positive", *r.MaxTokens)
	case len(r.Tools) > maxTools:
		return nil, fmt.Errorf("tools: %d of them, at most %d", len(r.Tools), maxTools)
	}
	var conversation []spokenMessage
	if r.Instructions != "" {
		conversation = append(conversation, spokenMessage{Role: "system", Content: r.Instructions})
	}
	items, err := responsesItems(r.Input)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if conversation, err = appendItem(conversation, item); err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
	}
	var tools []inference.Tool
	for i, t := range r.Tools {
		if t.Type != "function" {
			return nil, fmt.Errorf("tools[%d]: type %.40q: only functions, which the client runs itself", i, t.Type)
		}
		tools = append(tools, inference.Tool{Type: "function", Function: inference.Description{Name: t.Name, Description: t.Description, Parameters: parameters(t.Parameters), Strict: t.Strict}})
	}
	extra, err := r.extra()
	if err != nil {
		return nil, err
	}
	a, err := spokenAsk(conversation, tools, extra)
	if err != nil {
		return nil, err
	}
	if a.stream = r.Stream; r.MaxTokens != nil {
		a.maxTokens = *r.MaxTokens
	}
	return a, nil
}

// extra are the fields that chat completions spell in another way.
func (r *responsesAsk) extra() (map[string]any, error) {
	extra := map[string]any{}
	if r.Parallel != nil {
		extra["parallel_tool_calls"] = *r.Parallel
	}
	if r.Reasoning.Effort != "" {
		extra["reasoning_effort"] = r.Reasoning.Effort
	}
	var choice struct{ Type, Name string }
	var word string
	switch {
	case len(r.ToolChoice) == 0 || string(r.ToolChoice) == "null":
	case json.Unmarshal(r.ToolChoice, &word) == nil:
		extra["tool_choice"] = word
	case json.Unmarshal(r.ToolChoice, &choice) == nil && choice.Type == "function":
		extra["tool_choice"] = map[string]any{"type": "function", "function": map[string]string{"name": choice.Name}}
	default:
		return nil, errors.New("tool_choice: want auto, none, required or a function")
	}
	format, err := responseFormat(r.Text.Format)
	if err != nil {
		return nil, fmt.Errorf("text.format: %w", err)
	}
	if format != nil {
		extra["response_format"] = format
	}
	return extra, nil
}

// responseFormat is what other dialects say of an answer's form, as chat completions have it; nil where the answer is to be text.
func responseFormat(raw json.RawMessage) (any, error) {
	var format struct {
		Type   string          `json:"type"`
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict *bool           `json:"strict"`
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &format); err != nil {
		return nil, errors.New("want an object")
	}
	if format.Name == "" {
		format.Name = "answer" // which Anthropic's clients do not give
	}
	switch kind := format.Type; kind {
	case "text":
		return nil, nil
	case "json_object":
		return map[string]string{"type": kind}, nil
	case "json_schema":
		return map[string]any{"type": kind, kind: map[string]any{"name": format.Name, "schema": format.Schema, "strict": format.Strict}}, nil
	}
	return nil, fmt.Errorf("type %.40q, want text, json_object or json_schema", format.Type)
}

func responsesItems(raw json.RawMessage) ([]responsesItem, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		content, err := json.Marshal(text)
		return []responsesItem{{Role: "user", Content: content}}, err
	}
	var items []responsesItem
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, errors.New("input: want text or a list of items")
	}
	return items, nil
}

// appendItem puts an item behind a conversation. What the model said in one turn, its text and its calls, is one message there.
func appendItem(conversation []spokenMessage, item responsesItem) ([]spokenMessage, error) {
	switch item.Type {
	case "", "message":
		switch item.Role {
		case "system", "developer", "user", "assistant":
		default:
			return nil, fmt.Errorf("role: %.40q, want system, developer, user or assistant", item.Role)
		}
		content, err := contentText(item.Content)
		if err != nil {
			return nil, err
		}
		if n := len(conversation); item.Role == "assistant" && n > 0 && conversation[n-1].Role == "assistant" && conversation[n-1].Content == "" && conversation[n-1].ToolCalls == nil {
			conversation[n-1].Content = content // behind its reasoning
			return conversation, nil
		}
		return append(conversation, spokenMessage{Role: item.Role, Content: content}), nil
	case "reasoning":
		m := spokenMessage{Role: "assistant"}
		for _, s := range item.Summary {
			m.Reasoning += s.Text
		}
		return append(conversation, m), nil
	case "function_call":
		if n := len(conversation); n == 0 || conversation[n-1].Role != "assistant" {
			conversation = append(conversation, spokenMessage{Role: "assistant"})
		}
		m := &conversation[len(conversation)-1]
		m.ToolCalls = append(m.ToolCalls, inference.ToolCall{ID: item.CallID, Type: "function", Function: inference.Function{Name: item.Name, Arguments: item.Arguments}})
		return conversation, nil
	case "function_call_output":
		content, err := contentText(item.Output)
		if err != nil {
			return nil, err
		}
		return append(conversation, spokenMessage{Role: "tool", ToolCallID: item.CallID, Content: content}), nil
	}
	return nil, fmt.Errorf("type: %.40q cannot be read", item.Type)
}

// The answer's parts.
type (
	responsesAnswer struct {
		ID                string          `json:"id"`
		Object            string          `json:"object"`
		CreatedAt         int64           `json:"created_at"`
		Status            string          `json:"status"`
		Error             any             `json:"error"`
		IncompleteDetails any             `json:"incomplete_details"`
		Instructions      any             `json:"instructions"`
		Metadata          map[string]any  `json:"metadata"`
		Model             string          `json:"model"`
		Output            []any           `json:"output"`
		Parallel          bool            `json:"parallel_tool_calls"`
		Temperature       any             `json:"temperature"`
		ToolChoice        string          `json:"tool_choice"`
		Tools             []any           `json:"tools"`
		TopP              any             `json:"top_p"`
		Usage             *responsesUsage `json:"usage"`
	}
	responsesUsage struct {
		InputTokens   int            `json:"input_tokens"`
		InputDetails  map[string]int `json:"input_tokens_details"`
		OutputTokens  int            `json:"output_tokens"`
		OutputDetails map[string]int `json:"output_tokens_details"`
		TotalTokens   int            `json:"total_tokens"`
	}
	responsesText struct {
		Type        string `json:"type"` // output_text
		Text        string `json:"text"`
		Annotations []any  `json:"annotations"`
	}
	responsesMessage struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Status  string          `json:"status"`
		Role    string          `json:"role"`
		Content []responsesText `json:"content"`
	}
	responsesCall struct {
		Type      string `json:"type"`
		ID        string `json:"id"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
		Status    string `json:"status"`
	}
	responsesSummary struct {
		Type string `json:"type"` // summary_text
		Text string `json:"text"`
	}
	responsesReasoning struct {
		Type    string             `json:"type"`
		ID      string             `json:"id"`
		Summary []responsesSummary `json:"summary"`
	}
)

const inProgress, completed = "in_progress", "completed"

func responsesHead(n *answer, status string) responsesAnswer {
	return responsesAnswer{
		ID: "resp_" + n.id, Object: "response", CreatedAt: n.created.Unix(), Status: status, Metadata: map[string]any{}, Model: n.model,
		Output: []any{}, Parallel: true, ToolChoice: "auto", Tools: []any{},
	}
}

// reasoningItem is what the model thought; it has no items before it.
func reasoningItem(n *answer) responsesReasoning {
	return responsesReasoning{"reasoning", "rs_" + n.id, []responsesSummary{{"summary_text", n.reasoning}}}
}

func textOf(text string) responsesText {
	return responsesText{Type: "output_text", Text: text, Annotations: []any{}}
}

func callItem(n *answer, i int, arguments, status string) responsesCall {
	c := n.turn.ToolCalls[i]
	return responsesCall{"function_call", fmt.Sprintf("fc_%s_%d", n.id, i), c.ID, c.Name, arguments, status}
}

func (responsesDialect) whole(_ *ask, n *answer) any {
	r := responsesHead(n, completed)
	if n.turn.Cut() {
		reason := finishReason(n)
		if reason == events.FinishLength {
			reason = "max_output_tokens"
		}
		r.Status, r.IncompleteDetails = "incomplete", map[string]string{"reason": reason}
	}
	if n.reasoning != "" {
		r.Output = append(r.Output, reasoningItem(n))
	}
	if n.turn.Content != "" || len(n.turn.ToolCalls) == 0 {
		r.Output = append(r.Output, responsesMessage{"message", "msg_" + n.id, completed, "assistant", []responsesText{textOf(n.turn.Content)}})
	}
	for i, c := range n.turn.ToolCalls {
		r.Output = append(r.Output, callItem(n, i, c.Arguments, completed))
	}
	r.Usage = &responsesUsage{
		n.turn.PromptTokens, map[string]int{"cached_tokens": 0}, n.turn.CompletionTokens, map[string]int{"reasoning_tokens": 0},
		n.turn.Used(),
	}
	return r
}

func (d responsesDialect) pieces(a *ask, n *answer) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		s := responsesStream{yield: yield, going: true}
		s.send("response.created", map[string]any{"response": responsesHead(n, inProgress)})
		s.send("response.in_progress", map[string]any{"response": responsesHead(n, inProgress)})
		if n.reasoning != "" {
			s.item(responsesReasoning{"reasoning", "rs_" + n.id, []responsesSummary{}}, reasoningItem(n), func() {})
		}
		if n.turn.Content != "" || len(n.turn.ToolCalls) == 0 {
			s.message(n)
		}
		for i, c := range n.turn.ToolCalls {
			begun, done := callItem(n, i, "", inProgress), callItem(n, i, c.Arguments, completed)
			s.item(begun, done, func() {
				for part := range parts(c.Arguments) {
					s.send("response.function_call_arguments.delta", map[string]any{"item_id": done.ID, "output_index": s.index, "delta": part})
				}
				s.send("response.function_call_arguments.done", map[string]any{"item_id": done.ID, "output_index": s.index, "name": c.Name, "arguments": c.Arguments})
			})
		}
		whole := d.whole(a, n).(responsesAnswer)
		s.send("response."+whole.Status, map[string]any{"response": whole})
	}
}

// responsesStream numbers events and items.
type responsesStream struct {
	yield           func(piece) bool
	going           bool
	sequence, index int
}

func (s *responsesStream) send(name string, data map[string]any) {
	data["type"], data["sequence_number"] = name, s.sequence
	s.sequence++
	s.going = s.going && s.yield(piece{name: name, data: data})
}

func (s *responsesStream) item(begun, done any, content func()) {
	s.send("response.output_item.added", map[string]any{"output_index": s.index, "item": begun})
	content()
	s.send("response.output_item.done", map[string]any{"output_index": s.index, "item": done})
	s.index++
}

func (s *responsesStream) message(n *answer) {
	id := "msg_" + n.id
	begun := responsesMessage{"message", id, inProgress, "assistant", []responsesText{}}
	done := responsesMessage{"message", id, completed, "assistant", []responsesText{textOf(n.turn.Content)}}
	s.item(begun, done, func() {
		at := func(field string, value any) map[string]any {
			return map[string]any{"item_id": id, "output_index": s.index, "content_index": 0, field: value}
		}
		s.send("response.content_part.added", at("part", textOf("")))
		for part := range parts(n.turn.Content) {
			s.send("response.output_text.delta", at("delta", part))
		}
		s.send("response.output_text.done", at("text", n.turn.Content))
		s.send("response.content_part.done", at("part", textOf(n.turn.Content)))
	})
}

func (responsesDialect) failure(r *refusal) piece {
	p := chatDialect{}.failure(r)
	p.name = "error"
	return p
}
