// Package toolset says which tools an agent has: those of a set, the run's own programs, and those
// of servers. It is read from JSON and YAML, and it executes nothing: package tools does.
package toolset

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rondo-rl/rondo/wording"
)

// Sets of tools.
const (
	// Basic are six tools, whose commands each run in a new shell: what runs have that name no set.
	Basic = "basic"
	// Composer are the tools of Cursor's Composer, with its arguments, whose
	// commands go on in one shell.
	Composer = "composer"
)

// Sets has the names of each set's tools, in the order in which a prompt has them. codebase_search
// belongs to both, for runs with that feature.
var Sets = map[string][]string{
	Basic: {"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd", "codebase_search"},
	Composer: {
		"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd", "codebase_search",
		"delete_file", "glob_file_search", "read_lints", "todo_write",
	},
}

// Tooling says which tools a run's agents have, what they are called, and
// whether answers are used again.
type Tooling struct {
	// Set is the one that the tools are of; "" is basic.
	Set string `json:"set,omitempty" yaml:"set" absent:"basic"`
	// Only are the tools of the set that are offered; none is all.
	Only []string `json:"only,omitempty" yaml:"only" absent:"all tools of the set"`
	// Rename gives tools of the set the names that the model knows them by.
	Rename map[string]string `json:"rename,omitempty" yaml:"rename"`
	// Add are the run's own.
	Add []Added `json:"add,omitempty" yaml:"add"`
	// Servers are those of the Model Context Protocol whose tools are offered, too.
	Servers []Server `json:"servers,omitempty" yaml:"servers"`
	// Cache lets the answers of read-only tools be used again where nothing
	// has changed; nil is true.
	Cache *bool `json:"cache,omitempty" yaml:"cache"`
	// CommandTimeout bounds one shell command; 0 is a minute. Limits.Timeout must leave time for
	// it: tools may use half of that.
	CommandTimeout wording.Duration `json:"command_timeout,omitempty" yaml:"command_timeout" absent:"1m"`
}

// Added is a tool of the run's own: a program in the sandbox, which gets the arguments as
// JSON on its standard input.
type Added struct {
	Name        string `json:"name" yaml:"name"`
	Description string `json:"description" yaml:"description"`
	// Parameters is the JSON Schema of the arguments, an object; nil takes none.
	Parameters map[string]any `json:"parameters,omitempty" yaml:"parameters"`
	Command    []string       `json:"command" yaml:"command"`
	// ReadOnly tools change nothing and may run at the same time.
	ReadOnly bool `json:"read_only,omitempty" yaml:"read_only"`
	// Timeout bounds one call; 0 is a minute.
	Timeout wording.Duration `json:"timeout,omitempty" yaml:"timeout" absent:"1m"`
}

// Named are the tools of the set that the run offers, by the set's names.
func (t Tooling) Named() []string {
	set := t.All()
	if len(t.Only) == 0 {
		return set
	}
	return slices.DeleteFunc(slices.Clone(set), func(name string) bool { return !slices.Contains(t.Only, name) })
}

// All are the tools of the set, none of one that there is not.
func (t Tooling) All() []string {
	if t.Set == "" {
		return Sets[Basic]
	}
	return Sets[t.Set]
}

// Called is the name by which the model knows a tool of the set.
func (t Tooling) Called(name string) string {
	if called, ok := t.Rename[name]; ok {
		return called
	}
	return name
}

// Caches reports whether answers are used again.
func (t Tooling) Caches() bool { return t.Cache == nil || *t.Cache }

// Settings are what the tools of an agent follow from.
type Settings struct {
	Tools Tooling
	// Search offers codebase_search.
	Search bool
	// Network are the entries of what commands can reach, which the model is told.
	Network []string
}

// Arguments is what the tool takes.
func (a Added) Arguments() Arguments { return Arguments(a.Parameters) }

// Arguments is a JSON Schema of a tool's arguments, an object; nil takes none.
type Arguments map[string]any

// Schema is what the arguments must meet. It refers to no other document.
func (a Arguments) Schema() (*jsonschema.Schema, error) {
	encoded, err := a.Document()
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("urn:tool", document); err != nil {
		return nil, err
	}
	return c.Compile("urn:tool")
}

// Document is the schema as JSON.
func (a Arguments) Document() (json.RawMessage, error) {
	if a == nil {
		a = Arguments{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
	}
	return json.Marshal(a)
}
