package dialects

import (
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/storage"
)

// spokenMessage is a message of a chat that was said in another dialect.
type spokenMessage struct {
	Role       string               `json:"role"`
	Content    string               `json:"content"`
	Reasoning  string               `json:"reasoning_content,omitempty"`
	ToolCallID string               `json:"tool_call_id,omitempty"`
	ToolCalls  []inference.ToolCall `json:"tool_calls,omitempty"`
	images     []storage.Image
	parts      []any // in the place of Content, where there are images
}

// MarshalJSON writes a message as chats have it.
func (m spokenMessage) MarshalJSON() ([]byte, error) {
	type plain spokenMessage // without this method
	if m.parts == nil {
		return inference.Encode(plain(m))
	}
	return inference.Encode(struct {
		plain
		Content []any `json:"content"`
	}{plain(m), m.parts})
}

// with is a message with a content.
func (m spokenMessage) with(c content) spokenMessage {
	m.Content, m.images, m.parts = c.text, c.images, c.parts
	return m
}

// spokenAsk makes a chat completion's request of a conversation in another dialect.
func spokenAsk(conversation []spokenMessage, shown gallery, tools []inference.Tool,
	extra map[string]any) (*Request, error) {
	if len(conversation) == 0 || len(conversation) > maxMessages {
		return nil, fmt.Errorf("the conversation has %d messages, want 1 to %d", len(conversation), maxMessages)
	}
	a := &Request{Forward: map[string]json.RawMessage{}, Images: shown.files}
	for i, m := range conversation {
		said := events.PromptMessage{Role: m.Role, Content: m.Content, Images: m.images, ToolCallID: m.ToolCallID}
		if len(m.ToolCallID) > maxName {
			return nil, fmt.Errorf("an id of a tool call has %d bytes, at most %d", len(m.ToolCallID), maxName)
		}
		for k, c := range m.ToolCalls {
			said.ToolCalls = append(said.ToolCalls, events.ToolCall{ID: c.ID, Name: c.Function.Name,
				Arguments: string(c.Function.Arguments)})
			conversation[i].ToolCalls[k].Function.Arguments = c.Function.Arguments.ForServer()
		}
		a.Conversation = append(a.Conversation, said)
		raw, err := inference.Encode(conversation[i])
		if err != nil {
			return nil, err
		}
		a.Messages = append(a.Messages, raw)
	}
	a.Forward["messages"] = array(a.Messages)
	if len(tools) > 0 {
		extra["tools"] = tools
	}
	for field, value := range extra {
		raw, err := inference.Encode(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		a.Forward[field] = raw
	}
	return a, nil
}

// parameters is a tool's schema; a tool without one takes no arguments.
func parameters(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 || string(schema) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return schema
}
