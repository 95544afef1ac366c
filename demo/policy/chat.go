package policy

// Message is one message of a chat, in the terms of the OpenAI chat-completions API.
type Message struct {
	Role       string     `json:"role"` // system, user, assistant or tool
	Content    string     `json:"content"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // assistant only
	ToolCallID string     `json:"tool_call_id,omitempty"` // tool only
}

// ToolCall is one call that an assistant message asks for.
type ToolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"` // always "function"
	Function Function `json:"function"`
}

// Function names the tool; Arguments is JSON text exactly as it was generated.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}
