// Package tools is the set of tools that an agent works with in a sandbox: what each is called,
// takes and answers, and its execution. Nothing that a model writes is an error of Go: a call that
// makes no sense is answered by an observation that says why.
package tools

import (
	"encoding/json"
	"time"
)

// Definition describes a tool: the one place from which all forms of it are made.
type Definition struct {
	Name        string
	Description string
	// Parameters is a JSON Schema of the arguments.
	Parameters json.RawMessage
	// ReadOnly tools change nothing and may run at the same time.
	ReadOnly bool
	// Idempotent tools change nothing more when they are called again with the same arguments.
	Idempotent bool
	// Destructive tools may take away what was there.
	Destructive bool
	// Outside: the call is done by a server outside of the sandbox.
	Outside bool
	// Effect is what a call may change in the sandbox where the tool is not read-only.
	Effect Effect
	// Follows is what the answer of a read-only tool follows from, beside the arguments.
	Follows Follows
	Limits  Limits
}

// Effect is what a call may change.
type Effect int

// Effects, from the most to the least.
const (
	Anything Effect = iota // in the sandbox
	OneFile                // that the arguments name
	Nothing
)

// Follows is what an answer follows from.
type Follows int

// What answers follow from.
const (
	// FromSandbox: from more than is known of it.
	FromSandbox Follows = iota
	// FromSnapshot: from the snapshot, as long as nothing has changed.
	FromSnapshot
	// FromFiles: from the workspace, as long as nothing but single files has changed.
	FromFiles
	// FromWorkspace: from the contents of the workspace, whatever has changed them.
	FromWorkspace
)

// Limits bound what a call takes and answers; 0 is none of its own.
type Limits struct {
	// AnswerBytes bounds the text of the answer. What is over is cut out of its middle.
	AnswerBytes int
	// Items bounds the lines, names, matches or entries that an answer shows.
	Items int
	// Time bounds one call; 0 is that of a file operation, a minute.
	Time time.Duration
}

// OpenAI is the form in which chat endpoints take a tool.
type OpenAI struct {
	Type     string         `json:"type"`
	Function OpenAIFunction `json:"function"`
}

// OpenAIFunction is what an OpenAI tool is called and takes.
type OpenAIFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// OpenAI gives the form of chat endpoints.
func (d Definition) OpenAI() OpenAI {
	return OpenAI{Type: "function", Function: OpenAIFunction{Name: d.Name, Description: d.Description,
		Parameters: d.Parameters}}
}

// MCP is the form in which the Model Context Protocol lists a tool.
type MCP struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations MCPAnnotations  `json:"annotations"`
}

// MCPAnnotations are hints at what a call does. OpenWorldHint is of tools
// that are not in the sandbox.
type MCPAnnotations struct {
	ReadOnlyHint    bool `json:"readOnlyHint"`
	DestructiveHint bool `json:"destructiveHint"`
	IdempotentHint  bool `json:"idempotentHint"`
	OpenWorldHint   bool `json:"openWorldHint"`
}

// MCP gives the form of the Model Context Protocol.
func (d Definition) MCP() MCP {
	return MCP{
		Name: d.Name, Description: d.Description, InputSchema: d.Parameters,
		Annotations: MCPAnnotations{ReadOnlyHint: d.ReadOnly, DestructiveHint: d.Destructive,
			IdempotentHint: d.Idempotent || d.ReadOnly, OpenWorldHint: d.Outside},
	}
}
