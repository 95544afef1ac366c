package runfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Sets of tools.
const (
	// ToolsBasic are six tools, whose commands each run in a new shell: what runs have that name no set.
	ToolsBasic = "basic"
	// ToolsComposer are the tools of Cursor's Composer, with its arguments, whose commands go on in one shell.
	ToolsComposer = "composer"
)

// ToolSets has the names of each set's tools, in the order in which a prompt has them. codebase_search belongs to both, for runs with
// that feature.
var ToolSets = map[string][]string{
	ToolsBasic: {"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd", "codebase_search"},
	ToolsComposer: {
		"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd", "codebase_search", "delete_file", "glob_file_search", "read_lints", "todo_write",
	},
}

// Tooling says which tools a run's agents have, what they are called, and whether answers are used again.
type Tooling struct {
	// Set is the one that the tools are of; "" is basic.
	Set string `json:"set,omitempty" yaml:"set" absent:"basic"`
	// Only are the tools of the set that are offered; none is all.
	Only []string `json:"only,omitempty" yaml:"only" absent:"all tools of the set"`
	// Rename gives tools of the set the names that the model knows them by.
	Rename map[string]string `json:"rename,omitempty" yaml:"rename"`
	// Add are the run's own.
	Add []AddedTool `json:"add,omitempty" yaml:"add"`
	// Servers are those of the Model Context Protocol whose tools are offered, too.
	Servers []ToolServer `json:"servers,omitempty" yaml:"servers"`
	// Cache lets the answers of read-only tools be used again where nothing has changed; nil is true.
	Cache *bool `json:"cache,omitempty" yaml:"cache"`
	// CommandTimeout bounds one shell command; 0 is a minute. Limits.Timeout must leave time for it: tools may use half of that.
	CommandTimeout Duration `json:"command_timeout,omitempty" yaml:"command_timeout" absent:"1m"`
}

// AddedTool is a tool of the run's own: a program in the sandbox, which gets the arguments as JSON on its standard input.
type AddedTool struct {
	Name        string `json:"name" yaml:"name"`
	Description string `json:"description" yaml:"description"`
	// Parameters is the JSON Schema of the arguments, an object; nil takes none.
	Parameters map[string]any `json:"parameters,omitempty" yaml:"parameters"`
	Command    []string       `json:"command" yaml:"command"`
	// ReadOnly tools change nothing and may run at the same time.
	ReadOnly bool `json:"read_only,omitempty" yaml:"read_only"`
	// Timeout bounds one call; 0 is a minute.
	Timeout Duration `json:"timeout,omitempty" yaml:"timeout" absent:"1m"`
}

// Bounds of a run's own tools.
const (
	maxAddedTools   = 32
	maxToolSchema   = 16 << 10
	maxToolText     = 4 << 10
	maxToolCommand  = 64
	maxToolTimeout  = 10 * time.Minute
	maxCommandTime  = time.Hour
	maxToolWordSize = 4 << 10
)

// toolName is what chat endpoints take.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Named are the tools of the set that the run offers, by the set's names.
func (t Tooling) Named() []string {
	set := t.set()
	if len(t.Only) == 0 {
		return set
	}
	return slices.DeleteFunc(slices.Clone(set), func(name string) bool { return !slices.Contains(t.Only, name) })
}

func (t Tooling) set() []string {
	if t.Set == "" {
		return ToolSets[ToolsBasic]
	}
	return ToolSets[t.Set]
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

// CheckTools reports every setting of the run's tools that no service could work with.
func (c *RunConfig) CheckTools() error { return errors.Join(c.validateTools()...) }

func (c *RunConfig) validateTools() (errs []error) {
	t := c.Tools
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("tools."+format, args...))
		}
	}
	set := t.set()
	check(set != nil, "set %.80q: must be %s or %s", t.Set, ToolsBasic, ToolsComposer)
	if set == nil {
		return errs
	}
	wall := time.Duration(t.CommandTimeout)
	check(wall >= 0 && wall <= maxCommandTime, "command_timeout %s: must be 0 to %s", wall, maxCommandTime)
	for i, name := range t.Only {
		check(slices.Contains(set, name), "only: there is no %.80q in the set, only %v", name, set)
		check(!slices.Contains(t.Only[:i], name), "only: %.80q appears twice", name)
		check(name != "codebase_search" || c.Has(FeatureCodebaseSearch), "only: codebase_search needs the feature of that name")
	}
	for name := range t.Rename {
		check(slices.Contains(t.Named(), name), "rename: the run has no tool %.80q of the set", name)
	}
	check(len(t.Add) <= maxAddedTools, "add: %d tools, at most %d", len(t.Add), maxAddedTools)
	taken := map[string]bool{}
	for _, name := range t.Named() {
		called := t.Called(name)
		check(toolName.MatchString(called), "rename: %s: %.80q is not a name: use letters, digits, - and _, at most 64", name, called)
		check(!taken[called], "rename: two tools are called %.80q", called)
		taken[called] = true
	}
	for i, a := range t.Add {
		check(!taken[a.Name], "add: %d: two tools are called %.80q", i, a.Name)
		taken[a.Name] = true
		if err := a.validate(); err != nil {
			check(false, "add: %d (%.80q): %w", i, a.Name, err)
		}
	}
	return append(errs, t.validateServers(taken)...)
}

func (a AddedTool) validate() error {
	switch {
	case !toolName.MatchString(a.Name):
		return fmt.Errorf("name: use letters, digits, - and _, at most 64")
	case a.Description == "" || len(a.Description) > maxToolText:
		return fmt.Errorf("description of %d bytes: say what the tool does, in 1 to %d", len(a.Description), maxToolText)
	case a.Timeout < 0 || time.Duration(a.Timeout) > maxToolTimeout:
		return fmt.Errorf("timeout %s: must be 0 to %s", time.Duration(a.Timeout), maxToolTimeout)
	}
	if err := checkCommand(a.Command); err != nil {
		return err
	}
	return a.Arguments().check()
}

func checkCommand(command []string) error {
	if len(command) == 0 || command[0] == "" || len(command) > maxToolCommand {
		return fmt.Errorf("command of %d words: name the program and its arguments, at most %d words", len(command), maxToolCommand)
	}
	for _, word := range command {
		if len(word) > maxToolWordSize || strings.ContainsRune(word, 0) {
			return fmt.Errorf("command: a word of %d bytes, or with a zero byte (limit %d)", len(word), maxToolWordSize)
		}
	}
	return nil
}

// Arguments is what the tool takes.
func (a AddedTool) Arguments() ToolArguments { return ToolArguments(a.Parameters) }

// ToolArguments is a JSON Schema of a tool's arguments, an object; nil takes none.
type ToolArguments map[string]any

func (a ToolArguments) check() error {
	schema, err := json.Marshal(a)
	if err != nil || len(schema) > maxToolSchema {
		return fmt.Errorf("parameters of %d bytes: must be a JSON Schema of at most %d", len(schema), maxToolSchema)
	}
	if a != nil && a["type"] != "object" {
		return fmt.Errorf("parameters: their type must be object")
	}
	if _, err := a.Schema(); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	return nil
}

// Schema is what the arguments must meet. It refers to no other document.
func (a ToolArguments) Schema() (*jsonschema.Schema, error) {
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
func (a ToolArguments) Document() (json.RawMessage, error) {
	if a == nil {
		a = ToolArguments{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
	}
	return json.Marshal(a)
}
