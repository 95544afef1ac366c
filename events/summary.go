package events

import "strings"

// EndOfThoughts ends what a model thinks aloud, where the server leaves it in the text.
const EndOfThoughts = "</think>"

// Summary says how a summary came about.
type Summary struct {
	// Calls counts the tool calls that the model made in it. They were not run, and are not among the turn's ToolCalls.
	Calls int `json:"calls,omitempty" jsonschema:"minimum=0"`
	// Withheld: what the tools of the turn before answered did not fit. The prompt had WithheldResult in its place.
	Withheld bool `json:"withheld,omitempty"`
}

// WithheldResult stands for the answer of a tool that does not fit into the prompt of a summary.
const WithheldResult = "(This answer is left out: the context is full.)"

// Said is a turn's answer as a later prompt may repeat it: its text without thoughts.
func (t TurnSampled) Said() string {
	said := t.Content
	if _, behind, ended := strings.Cut(said, EndOfThoughts); ended {
		said = behind
	}
	return strings.TrimSpace(said)
}
