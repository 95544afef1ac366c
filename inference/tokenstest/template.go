// Package tokenstest is an inference server that takes and gives tokens as vLLM does, with a small
// tokenizer and chat templates of the shapes that widely used models have. Published templates are
// held in inference/testdata/templates.
package tokenstest

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// Message is a message as the server reads it.
type Message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning"`
	ToolCalls []Call `json:"tool_calls"`
}

// UnmarshalJSON reads a content that is a text, nothing, or a list of texts.
func (m *Message) UnmarshalJSON(data []byte) error {
	type plain Message // without this method
	var in struct {
		plain
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*m = Message(in.plain)
	var parts []struct{ Text string }
	if json.Unmarshal(in.Content, &parts) != nil {
		return json.Unmarshal(in.Content, &m.Content)
	}
	for _, p := range parts {
		m.Content += p.Text
	}
	return nil
}

// Call is a tool call of a message.
type Call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Template is how a model's messages are written.
type Template struct {
	// Begin begins every prompt, Prompt asks for an answer, and Assistant
	// begins one that was given.
	Begin, Prompt, Assistant string
	// Results stand in place of Prompt and Assistant behind results of tools; "" leaves those.
	Results [2]string
	// System, User and Tool stand before and behind such a message.
	System, User, Tool [2]string
	// Thoughts writes those of an answer: last is set of the last message, recent behind the
	// last message of the user.
	Thoughts func(thoughts string, last, recent bool) string
	// Calls stand before and behind a tool call, and End behind an answer; "" where the
	// next message begins at once.
	Calls [2]string
	End   string
	// Stop ends what the model samples: behind a tool call, and behind its last words.
	Stop [2]string
}

// Templates have the shapes of widely used models' templates.
var Templates = map[string]Template{
	// Thoughts are kept until the user speaks again; the last message has an empty block of them.
	"Qwen3": {
		Prompt: "<|im_start|>assistant\n", Assistant: "<|im_start|>assistant\n",
		System: [2]string{"<|im_start|>system\n", "<|im_end|>\n"},
		User:   [2]string{"<|im_start|>user\n", "<|im_end|>\n"},
		Tool:   [2]string{"<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"},
		Thoughts: func(thoughts string, last, recent bool) string {
			if !recent || !last && thoughts == "" {
				return ""
			}
			return "<think>\n" + thoughts + "\n</think>\n\n"
		},
		Calls: [2]string{"\n<tool_call>\n", "\n</tool_call>"}, End: "<|im_end|>\n",
		Stop: [2]string{"<|im_end|>", "<|im_end|>"},
	},
	// The prompt opens thoughts, and every message behind the user's last
	// words has a block of them.
	"Qwen35": {
		Prompt: "<|im_start|>assistant\n<think>\n", Assistant: "<|im_start|>assistant\n",
		System: [2]string{"<|im_start|>system\n", "<|im_end|>\n"},
		User:   [2]string{"<|im_start|>user\n", "<|im_end|>\n"},
		Tool:   [2]string{"<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"},
		Thoughts: func(thoughts string, _, recent bool) string {
			if !recent {
				return ""
			}
			return "<think>\n" + thoughts + "\n</think>\n\n"
		},
		Calls: [2]string{"\n\n<tool_call>\n", "\n</tool_call>"}, End: "<|im_end|>\n",
		Stop: [2]string{"<|im_end|>", "<|im_end|>"},
	},
	// Nothing but line breaks begins an answer behind results of tools. Thoughts open behind the
	// user's last words, and end in all messages.
	"DeepSeek": {
		Begin: "<｜begin▁of▁sentence｜>", Prompt: "<｜Assistant｜><think>", Assistant: "<｜Assistant｜>",
		Results: [2]string{"\n\n<think>", "\n\n"},
		System:  [2]string{"", ""}, User: [2]string{"<｜User｜>", ""},
		Tool: [2]string{"\n\n<function_results>\n<result>", "</result>\n</function_results>"},
		Thoughts: func(thoughts string, _, recent bool) string {
			if !recent {
				return "</think>"
			}
			return "<think>" + thoughts + "</think>"
		},
		Calls: [2]string{"\n\n<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"}, End: "<｜end▁of▁sentence｜>",
		Stop: [2]string{"<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
	},
	// Nothing ends an answer: the model stops with the token that begins the next message.
	"GLM": {
		Begin: "[gMASK]<sop>", Prompt: "<|assistant|>", Assistant: "<|assistant|>",
		System: [2]string{"<|system|>\n", ""}, User: [2]string{"<|user|>\n", ""},
		Tool: [2]string{"<|observation|>\n<tool_response>\n", "\n</tool_response>"},
		Thoughts: func(thoughts string, _, recent bool) string {
			if !recent {
				thoughts = ""
			}
			return "\n<think>" + thoughts + "</think>\n"
		},
		Calls: [2]string{"\n<tool_call>", "</tool_call>"}, Stop: [2]string{"<|observation|>", "<|user|>"},
	},
	// An empty block stands where thoughts were, and the end of a turn is one token.
	"Kimi": {
		Prompt: "<|im_assistant|>assistant<|im_middle|>", Assistant: "<|im_assistant|>assistant<|im_middle|>",
		System: [2]string{"<|im_system|>system<|im_middle|>", "<|im_end|>"},
		User:   [2]string{"<|im_user|>user<|im_middle|>", "<|im_end|>"},
		Tool:   [2]string{"<|im_system|>tool<|im_middle|>## Return\n", "<|im_end|>"},
		Thoughts: func(thoughts string, _, recent bool) string {
			if !recent {
				thoughts = ""
			}
			return "<think>" + thoughts + "</think>"
		},
		Calls: [2]string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}, End: "<|im_end|>",
		Stop: [2]string{"<|im_end|>", "<|im_end|>"},
	},
}

// Render writes messages, and asks for an answer where prompts says so.
func (t Template) Render(messages []Message, prompts bool) string {
	user := -1
	for i, m := range messages {
		if m.Role == "user" {
			user = i
		}
	}
	text := t.Begin
	for i, m := range messages {
		switch m.Role {
		case "system":
			text += t.System[0] + m.Content + t.System[1]
		case "user":
			text += t.User[0] + m.Content + t.User[1]
		case "tool":
			text += t.Tool[0] + m.Content + t.Tool[1]
		default:
			text += t.begins(messages[:i], t.Assistant, t.Results[1]) +
				t.Thoughts(m.Reasoning, i == len(messages)-1, i > user) + m.Content
			for _, c := range m.ToolCalls {
				text += t.call(c)
			}
			text += t.End
		}
	}
	if prompts {
		text += t.asks(messages)
	}
	return text
}

// asks is what asks for an answer to messages.
func (t Template) asks(messages []Message) string {
	return t.begins(messages, t.Prompt, t.Results[0])
}

// begins is the first of two texts that is there, or the second one behind results of tools.
func (t Template) begins(messages []Message, text, behindResults string) string {
	if behindResults != "" && len(messages) > 0 && messages[len(messages)-1].Role == "tool" {
		return behindResults
	}
	return text
}

// call writes a tool call as templates do, whose JSON has other spaces than models write.
func (t Template) call(c Call) string {
	name, _ := json.Marshal(c.Function.Name) // a string is always JSON
	return t.Calls[0] + `{"name": ` + string(name) + `, "arguments": ` + c.Function.Arguments + "}" + t.Calls[1]
}

// Opens says that prompts open the thoughts of answers.
func (t Template) Opens() bool { return strings.HasSuffix(strings.TrimSpace(t.Prompt), opens) }

// Answer is what a model samples: its thoughts, words, a call of read_file where path is
// not "", and the stop token.
func (t Template) Answer(thoughts, words, path string) string {
	open := opens + "\n"
	if t.Opens() {
		open = ""
	}
	text := open + thoughts + "\n</think>\n\n" + words
	if path == "" {
		return text + t.Stop[1]
	}
	return text + t.Calls[0] + `{"name":"read_file","arguments":{"path":"` + path + `"}}` + t.Calls[1] + t.Stop[0]
}

// Read is the message in what was sampled.
func (t Template) Read(text string) (m Message) {
	m.Role = "assistant"
	for _, stop := range t.Stop {
		text = strings.TrimSuffix(text, stop)
	}
	if thoughts, words, ended := strings.Cut(text, "</think>"); ended {
		m.Reasoning, text = strings.Trim(strings.TrimPrefix(thoughts, "<think>"), "\n"), strings.TrimLeft(words, "\n")
	}
	words, call, calls := strings.Cut(text, t.Calls[0])
	m.Content = words
	if call, _, ended := strings.Cut(call, t.Calls[1]); calls && ended {
		var asked struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if json.Unmarshal([]byte(call), &asked) == nil {
			c := Call{ID: "call-" + asked.Name, Type: "function"}
			c.Function.Name, c.Function.Arguments = asked.Name, string(asked.Arguments)
			m.ToolCalls = []Call{c}
		}
	}
	return m
}

// Tokenizer numbers pieces of text in the order in which it meets them.
type Tokenizer struct {
	mu     sync.Mutex
	ids    map[string]int32
	pieces []string
}

// piece is one token of a text: a special token, line breaks, or a word with the space before it.
var piece = regexp.MustCompile(`<[|｜][^<>|｜]*[|｜]>|</?(?:think|tool_call|tool_response)>|\n+|[ ]?[A-Za-z]+|[ ]?[0-9]|[\s\S]`)

// Encode cuts a text as templates' renderings are cut. Where a model sampled it, long words are two
// tokens: a text has more than one way to be written.
func (k *Tokenizer) Encode(text string, sampled bool) (ids []int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]int32{}
	}
	for _, p := range piece.FindAllString(text, -1) {
		if sampled && len(p) > 3 && p[0] != '<' {
			ids = append(ids, k.id(p[:2]))
			p = p[2:]
		}
		ids = append(ids, k.id(p))
	}
	return ids
}

func (k *Tokenizer) id(p string) int32 {
	id, known := k.ids[p]
	if !known {
		id = int32(len(k.pieces))
		k.ids[p], k.pieces = id, append(k.pieces, p)
	}
	return id
}

// Decode is the text of tokens.
func (k *Tokenizer) Decode(ids []int32) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(k.pieces[id])
	}
	return text.String()
}
