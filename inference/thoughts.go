package inference

import (
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
)

// Thoughts are the fields of a message in which servers give, and take, what a model thought:
// reasoning_content of SGLang, llama.cpp, DeepSeek and older vLLM, reasoning of newer vLLM and
// OpenRouter, and lists of blocks of gateways to models that sign their thoughts.
type Thoughts struct {
	Reasoning        string          `json:"reasoning,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ThinkingBlocks   json.RawMessage `json:"thinking_blocks,omitempty"`
	ReasoningDetails json.RawMessage `json:"reasoning_details,omitempty"`
	// Parts are the message's content where that is a list with thoughts in it, as Mistral's is. It
	// is given back in place of the text.
	Parts json.RawMessage `json:"-"`
}

// The names of the fields.
const (
	fieldReasoning        = "reasoning"
	fieldReasoningContent = "reasoning_content"
	fieldThinkingBlocks   = "thinking_blocks"
	fieldReasoningDetails = "reasoning_details"
	fieldContent          = "content"
)

// recorded is how a turn records thoughts, nil for none.
func (t Thoughts) recorded() (*events.Reasoning, error) {
	var r events.Reasoning
	for _, f := range []struct{ name, text string }{{fieldReasoningContent, t.ReasoningContent},
		{fieldReasoning, t.Reasoning}} {
		if f.text != "" && (r.Text == "" || r.Text == f.text) {
			r.Text, r.Fields = f.text, append(r.Fields, f.name)
		}
	}
	size := len(r.Text)
	for name, blocks := range map[string]json.RawMessage{fieldThinkingBlocks: t.ThinkingBlocks,
		fieldReasoningDetails: t.ReasoningDetails, fieldContent: t.Parts} {
		if len(blocks) == 0 || blocks[0] != '[' || string(blocks) == "[]" {
			continue
		}
		if r.Blocks == nil {
			r.Blocks = map[string]json.RawMessage{}
		}
		r.Blocks[name] = blocks
		size += len(blocks)
	}
	switch {
	case size == 0:
		return nil, nil
	case size > events.MaxReasoning:
		return nil, fmt.Errorf("%d bytes of reasoning, at most %d are allowed", size, events.MaxReasoning)
	}
	if r.Text == "" {
		r.Text = textOf(t.ThinkingBlocks)
	}
	if r.Text == "" && t.Parts != nil {
		_, r.Text, _ = readParts(t.Parts) // it was read before
	}
	return &r, nil
}

// textOf is the text in thinking blocks.
func textOf(blocks json.RawMessage) (text string) {
	var list []struct {
		Thinking string `json:"thinking"`
	}
	_ = json.Unmarshal(blocks, &list) // what has another form has no text, and is kept as it is
	for _, b := range list {
		text += b.Thinking
	}
	return text
}

// thoughtsOf gives a server back what it gave, in the form in which it gave it.
func thoughtsOf(r *events.Reasoning) (t Thoughts) {
	if r == nil {
		return t
	}
	for _, field := range r.Fields {
		switch field {
		case fieldReasoning:
			t.Reasoning = r.Text
		case fieldReasoningContent:
			t.ReasoningContent = r.Text
		}
	}
	t.ThinkingBlocks, t.ReasoningDetails, t.Parts = r.Blocks[fieldThinkingBlocks],
		r.Blocks[fieldReasoningDetails], r.Blocks[fieldContent]
	return t
}

// Recorded is a sampled turn's message as servers take it.
func Recorded(turn *events.TurnSampled) Message {
	m := Message{Role: roleAssistant, Content: turn.Content, Thoughts: thoughtsOf(turn.Reasoning)}
	for _, c := range turn.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: c.ID, Type: "function",
			Function: Function{Name: c.Name, Arguments: Arguments(c.Arguments).ForServer()}})
	}
	return m
}
