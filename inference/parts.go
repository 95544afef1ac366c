package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxContentParts bounds the parts of a content and those of a thought in it.
const maxContentParts = 256

// saidMessage is the message of an answer. Its content is a text, or a list of parts.
type saidMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Thoughts
	ToolCalls toolAsked `json:"tool_calls"`
	called    bool      // in function_call, the older field, which nobody reads
}

// UnmarshalJSON reads a content in either form. The list is kept where it has thoughts, which
// stand in no other field then.
func (m *saidMessage) UnmarshalJSON(data []byte) error {
	type plain saidMessage // without this method
	var in struct {
		plain
		Content json.RawMessage `json:"content"`
		Called  *struct{}       `json:"function_call"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*m = saidMessage(in.plain)
	m.called = in.Called != nil
	if len(in.Content) == 0 || in.Content[0] != '[' {
		m.Content = ""
		return json.Unmarshal(orNull(in.Content), &m.Content)
	}
	words, thoughts, err := readParts(in.Content)
	if err != nil {
		return err
	}
	if m.Content = words; thoughts != "" {
		m.Parts = in.Content
	}
	return nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// part is one of a content's: text, or thoughts, which are a text or a list of texts.
type part struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking json.RawMessage `json:"thinking"`
}

// readParts is what the parts of a content say, and what of it was thought.
func readParts(raw json.RawMessage) (words, thoughts string, err error) {
	list, err := listOf(raw)
	if err != nil {
		return "", "", err
	}
	var said, thought strings.Builder
	for i, p := range list {
		switch p.Type {
		case "text":
			said.WriteString(p.Text)
		case "thinking":
			text, err := thinkingOf(p.Thinking)
			if err != nil {
				return "", "", fmt.Errorf("content[%d]: %w", i, err)
			}
			thought.WriteString(text)
		default:
			return "", "", fmt.Errorf("content[%d]: a part of type %.40q cannot be read", i, p.Type)
		}
	}
	return said.String(), thought.String(), nil
}

// thinkingOf is the text of one thought.
func thinkingOf(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(orNull(raw), &text) == nil {
		return text, nil
	}
	list, err := listOf(raw)
	if err != nil {
		return "", fmt.Errorf("thinking: %w", err)
	}
	var b strings.Builder
	for i, p := range list {
		if p.Type != "text" {
			return "", fmt.Errorf("thinking[%d]: a part of type %.40q cannot be read", i, p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// listOf reads no more parts than are allowed, and one more.
func listOf(raw json.RawMessage) ([]part, error) {
	var list [maxContentParts + 1]element[part]
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("want a list of parts")
	}
	found := values(list[:])
	if len(found) > maxContentParts {
		return nil, fmt.Errorf("more than %d parts", maxContentParts)
	}
	return found, nil
}

// MarshalJSON writes a content in the form in which it came.
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message // without this method
	if len(m.Parts) == 0 {
		return Encode(plain(m))
	}
	return Encode(struct {
		plain
		Content json.RawMessage `json:"content"`
	}{plain(m), m.Parts})
}
