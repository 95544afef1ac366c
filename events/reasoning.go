package events

import "encoding/json"

// Reasoning is what a model thought before it answered, where the server takes it out of the text.
type Reasoning struct {
	// Text is all of it as text.
	Text string `json:"text,omitempty"`
	// Fields are the fields of the message that the server put the text into: it gets it back in the same.
	Fields []string `json:"fields,omitempty" jsonschema:"maxItems=2"`
	// Blocks are the lists that some servers give beside the text or in its place, by their field. Their content is theirs: signatures must come back unchanged.
	Blocks map[string]json.RawMessage `json:"blocks,omitempty" jsonschema:"maxProperties=3"`
}

// MaxReasoning bounds the reasoning of one turn, in bytes.
const MaxReasoning = 1 << 20
