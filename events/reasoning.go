package events

import (
	"encoding/json"
	"strings"
)

// Reasoning is what a model thought before it answered, where the server takes it out of the text.
type Reasoning struct {
	// Text is all of it as text.
	Text string `json:"text,omitempty"`
	// Fields are the fields of the message that the server put the text into: it
	// gets it back in the same.
	Fields []string `json:"fields,omitempty" jsonschema:"maxItems=2"`
	// Blocks are the lists that some servers give beside the text or in its place, by their field.
	// Their content is theirs: signatures must come back unchanged.
	Blocks map[string]json.RawMessage `json:"blocks,omitempty" jsonschema:"maxProperties=3"`
}

// MaxReasoning bounds the reasoning of one turn, in bytes.
const MaxReasoning = 1 << 20

// EndOfThoughts ends what a model thinks aloud, where the server leaves it in the text.
const EndOfThoughts = "</think>"

// Summary says how a summary came about.
type Summary struct {
	// Calls counts the tool calls that the model made in it. They were not run, and are not
	// among the turn's ToolCalls.
	Calls int `json:"calls,omitempty" jsonschema:"minimum=0"`
	// Withheld: what the tools of the turn before answered did not fit. The prompt had
	// WithheldResult in its place.
	Withheld bool `json:"withheld,omitempty"`
}

// WithheldResult stands for the answer of a tool that does not fit into the prompt of a summary.
const WithheldResult = "(This answer is left out: the context is full.)"

// RepeatedText is a turn's answer as a later prompt may repeat it: its text without thoughts.
func (t TurnSampled) RepeatedText() string {
	said := t.Content
	if _, behind, ended := strings.Cut(said, EndOfThoughts); ended {
		said = behind
	}
	return strings.TrimSpace(said)
}
