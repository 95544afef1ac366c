package runfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

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

// ToolSettings are what the tools of the run's agents follow from.
func (c *RunConfig) ToolSettings() toolset.Settings {
	return toolset.Settings{Tools: c.Tools, Search: c.Has(FeatureCodebaseSearch), Network: c.Network.Allowed()}
}

// CheckTools reports every setting of the run's tools that no service could work with.
func (c *RunConfig) CheckTools() error { return errors.Join(c.validateTools()...) }

func (c *RunConfig) validateTools() (errs []error) {
	t := c.Tools
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("tools."+format, args...))
		}
	}
	set := t.All()
	check(set != nil, "set %.80q: must be %s or %s", t.Set, toolset.Basic, toolset.Composer)
	if set == nil {
		return errs
	}
	wall := time.Duration(t.CommandTimeout)
	check(wall >= 0 && wall <= maxCommandTime, "command_timeout %s: must be 0 to %s", wall, maxCommandTime)
	for i, name := range t.Only {
		check(slices.Contains(set, name), "only: there is no %.80q in the set, only %v", name, set)
		check(!slices.Contains(t.Only[:i], name), "only: %.80q appears twice", name)
		check(name != "codebase_search" || c.Has(FeatureCodebaseSearch),
			"only: codebase_search needs the feature of that name")
	}
	for name := range t.Rename {
		check(slices.Contains(t.Named(), name), "rename: the run has no tool %.80q of the set", name)
	}
	check(len(t.Add) <= maxAddedTools, "add: %d tools, at most %d", len(t.Add), maxAddedTools)
	taken := map[string]bool{}
	for _, name := range t.Named() {
		called := t.Called(name)
		check(toolName.MatchString(called), "rename: %s: %.80q is not a name: use letters, digits, - and _, at most 64",
			name, called)
		check(!taken[called], "rename: two tools are called %.80q", called)
		taken[called] = true
	}
	for i, a := range t.Add {
		check(!taken[a.Name], "add: %d: two tools are called %.80q", i, a.Name)
		taken[a.Name] = true
		if err := validateAdded(a); err != nil {
			check(false, "add: %d (%.80q): %w", i, a.Name, err)
		}
	}
	return append(errs, validateServers(t.Servers, taken)...)
}

func validateAdded(a toolset.Added) error {
	switch {
	case !toolName.MatchString(a.Name):
		return fmt.Errorf("name: use letters, digits, - and _, at most 64")
	case a.Description == "" || len(a.Description) > maxToolText:
		return fmt.Errorf("description of %d bytes: say what the tool does, in 1 to %d", len(a.Description),
			maxToolText)
	case a.Timeout < 0 || time.Duration(a.Timeout) > maxToolTimeout:
		return fmt.Errorf("timeout %s: must be 0 to %s", time.Duration(a.Timeout), maxToolTimeout)
	}
	if err := checkCommand(a.Command); err != nil {
		return err
	}
	return checkArguments(a.Arguments())
}

func checkCommand(command []string) error {
	if len(command) == 0 || command[0] == "" || len(command) > maxToolCommand {
		return fmt.Errorf("command of %d words: name the program and its arguments, at most %d words", len(command),
			maxToolCommand)
	}
	for _, word := range command {
		if len(word) > maxToolWordSize || strings.ContainsRune(word, 0) {
			return fmt.Errorf("command: a word of %d bytes, or with a zero byte (limit %d)", len(word), maxToolWordSize)
		}
	}
	return nil
}

func checkArguments(a toolset.Arguments) error {
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
