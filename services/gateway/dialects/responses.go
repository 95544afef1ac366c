package dialects

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// Responses is OpenAI's Responses, for clients that send the whole conversation each time.
type Responses struct{}

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
	Include      []string        `json:"include"`
	Text         struct {
		Format json.RawMessage `json:"format"`
	} `json:"text"`
	Reasoning struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
}

// responsesItem is a part of the input.
type responsesItem struct {
	Type      string              `json:"type"`
	ID        string              `json:"id"`
	Role      string              `json:"role"`
	Content   json.RawMessage     `json:"content"`
	CallID    string              `json:"call_id"`
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Arguments inference.Arguments `json:"arguments"`
	Input     string              `json:"input"`  // of a custom tool
	Action    json.RawMessage     `json:"action"` // of a local shell
	Execution string              `json:"execution"`
	Tools     []responsesTool     `json:"tools"` // which a search has found
	Output    json.RawMessage     `json:"output"`
	Summary   json.RawMessage     `json:"summary"`
	Encrypted string              `json:"encrypted_content"`
}

// Read implements Dialect.
func (Responses) Read(body []byte) (*Request, error) {
	if _, err := fields.Responses.Check(body); err != nil {
		return nil, err
	}
	var r responsesAsk
	if err := fields.Decode(body, &r); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	switch {
	case r.Previous != "" || len(r.Conversation) > 0 && string(r.Conversation) != "null":
		return nil, errors.New("previous_response_id, conversation: the gateway keeps no conversations; send all of the input")
	case slices.Contains(r.Include, "message.output_text.logprobs"):
		return nil, errors.New("include: an answer of responses has no log-probabilities here; ask for a chat completion")
	case r.Background:
		return nil, errors.New("background: wait for the answer")
	case r.MaxTokens != nil && *r.MaxTokens < 1:
		return nil, fmt.Errorf("max_output_tokens: %d, must be positive", *r.MaxTokens)
	}
	box := toolbox{}
	tools, without, err := box.readTools(r.Tools)
	if err != nil {
		return nil, err
	}
	var conversation []spokenMessage
	var shown gallery
	if r.Instructions != "" {
		conversation = append(conversation, spokenMessage{Role: "system", Content: r.Instructions})
	}
	items, err := responsesItems(r.Input)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if conversation, err = box.appendItem(conversation, item, &shown); err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
	}
	extra, err := r.extra(box)
	if err != nil {
		return nil, err
	}
	a, err := spokenAsk(conversation, shown, tools, extra)
	if err != nil {
		return nil, err
	}
	a.tools, a.Withheld = box, without
	if a.Stream = r.Stream; r.MaxTokens != nil {
		a.MaxTokens = *r.MaxTokens
	}
	return a, nil
}

// extra are the fields that chat completions spell in another way.
func (r *responsesAsk) extra(box toolbox) (map[string]any, error) {
	extra := map[string]any{}
	if r.Parallel != nil {
		extra["parallel_tool_calls"] = *r.Parallel
	}
	if r.Reasoning.Effort != "" {
		extra["reasoning_effort"] = r.Reasoning.Effort
	}
	if len(r.ToolChoice) > 0 && string(r.ToolChoice) != "null" {
		choice, err := box.choice(r.ToolChoice)
		if err != nil {
			return nil, err
		}
		extra["tool_choice"] = choice
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

// responseFormat is what other dialects say of an answer's form, as chat completions have it; nil
// where the answer is to be text.
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
	if err := fields.Decode(raw, &format); err != nil {
		return nil, fmt.Errorf("want an object: %w", err)
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
		return map[string]any{"type": kind, kind: map[string]any{"name": format.Name, "schema": format.Schema,
			"strict": format.Strict}}, nil
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
	if err := fields.Decode(raw, &items); err != nil {
		return nil, fmt.Errorf("input: want text or a list of items: %w", err)
	}
	return items, nil
}

// appendItem puts an item behind a conversation. What the model said in one turn, its text and its
// calls, is one message there.
func (b toolbox) appendItem(conversation []spokenMessage, item responsesItem, shown *gallery) ([]spokenMessage, error) {
	switch item.Type {
	case "", "message":
		return appendMessage(conversation, item, shown)
	case "reasoning":
		thoughts, err := item.thoughts()
		return append(conversation, spokenMessage{Role: "assistant", Reasoning: thoughts}), err
	case "function_call", "custom_tool_call", "local_shell_call", "tool_search_call":
		call, err := item.call()
		if err != nil {
			return nil, err
		}
		if n := len(conversation); n == 0 || conversation[n-1].Role != "assistant" {
			conversation = append(conversation, spokenMessage{Role: "assistant"})
		}
		m := &conversation[len(conversation)-1]
		m.ToolCalls = append(m.ToolCalls, inference.ToolCall{ID: item.CallID, Type: functionTool, Function: call})
		return conversation, nil
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		output, err := shown.content(item.Output)
		return append(conversation, spokenMessage{Role: "tool",
			ToolCallID: cmp.Or(item.CallID, item.ID)}.with(output)), err
	case "tool_search_output":
		found, err := b.found(item.Tools)
		return append(conversation, spokenMessage{Role: "tool", ToolCallID: item.CallID, Content: found}), err
	}
	return nil, fmt.Errorf("type: an item of type %.40q cannot be carried to a chat", item.Type)
}

func appendMessage(conversation []spokenMessage, item responsesItem, shown *gallery) ([]spokenMessage, error) {
	switch item.Role {
	case "system", "user", "assistant":
	case "developer": // chat templates refuse it, or leave its words out in silence
		item.Role = "system"
	default:
		return nil, fmt.Errorf("role: %.40q, want system, developer, user or assistant", item.Role)
	}
	if item.Role == "user" {
		said, err := shown.content(item.Content)
		return append(conversation, spokenMessage{Role: item.Role}.with(said)), err
	}
	content, err := ContentText(item.Content)
	if err != nil {
		return nil, err
	}
	if n := len(conversation); item.Role == "system" && n == 1 && conversation[0].Role == "system" {
		conversation[0].Content += "\n\n" + content // many templates take one at the beginning, and no more
		return conversation, nil
	}
	if n := len(conversation); item.Role == "assistant" && n > 0 && conversation[n-1].Role == "assistant" &&
		conversation[n-1].Content == "" && conversation[n-1].ToolCalls == nil {
		conversation[n-1].Content = content // behind its reasoning
		return conversation, nil
	}
	return append(conversation, spokenMessage{Role: item.Role, Content: content}), nil
}

// thoughts are the model's own where the client has them, or else their summary.
func (i responsesItem) thoughts() (string, error) {
	if i.Encrypted != "" {
		return "", errors.New("encrypted_content: it is another provider's, and cannot be read here")
	}
	own, err := ContentText(i.Content)
	if err != nil || own != "" {
		return own, err
	}
	return ContentText(i.Summary)
}

// call is an item's as the chat has it.
func (i responsesItem) call() (inference.Function, error) {
	name := toolName{name: i.Name, namespace: i.Namespace}
	switch i.Type {
	case "custom_tool_call":
		arguments, err := inference.Encode(map[string]string{"input": i.Input})
		return inference.Function{Name: name.function(), Arguments: inference.Arguments(arguments)}, err
	case "local_shell_call":
		var action shellAction
		if err := fields.Decode(i.Action, &action); err != nil {
			return inference.Function{}, fmt.Errorf("action: %w", err)
		}
		if action.Type != "exec" {
			return inference.Function{}, errors.New("action: want an object of type exec with a command")
		}
		action.Type = ""
		arguments, err := inference.Encode(action)
		return inference.Function{Name: localShellTool, Arguments: inference.Arguments(arguments)}, err
	case "tool_search_call":
		if i.Execution != "client" {
			return inference.Function{},
				fmt.Errorf("execution: %.40q: another provider has searched its tools, which cannot be carried to a chat", i.Execution)
		}
		name.name = toolSearchTool
	}
	return inference.Function{Name: name.function(), Arguments: i.Arguments}, nil
}

// found is what a search of tools tells the model: their descriptions,
// behind which it may call them.
func (b toolbox) found(list []responsesTool) (string, error) {
	tools := []inference.Tool{}
	for i, t := range list {
		functions, err := b.functions(t)
		if err != nil {
			return "", fmt.Errorf("tools[%d]: %w", i, err)
		}
		tools = append(tools, functions...)
	}
	text, err := inference.Encode(tools)
	return string(text), err
}
