package runfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// ToolServer is a server of the Model Context Protocol whose tools the agents have, too: a program in each rollout's sandbox, which is
// talked to over its standard input and output, or an endpoint outside of it.
type ToolServer struct {
	// Name comes before those of its tools: the model knows them as NAME__TOOL.
	Name string `json:"name" yaml:"name"`
	// Command starts the server in the sandbox. It is started by the first call there, and ends with the sandbox.
	Command []string `json:"command,omitempty" yaml:"command"`
	// URL is the server's where it has no command. The tool runner asks it, with the key that it has for that URL.
	URL string `json:"url,omitempty" yaml:"url"`
	// Only are the tools that are offered, by the server's names; none is all.
	Only []string `json:"only,omitempty" yaml:"only" absent:"all tools of the server"`
	// Timeout bounds one call; 0 is a minute.
	Timeout Duration `json:"timeout,omitempty" yaml:"timeout" absent:"1m"`
	// Tools are what the server offers. What is not in the run file is listed when the run is opened, and counts from then on, whatever
	// the server says later.
	Tools []ServerTool `json:"tools,omitempty" yaml:"tools" absent:"the tools that the server lists"`
}

// ServerTool is a tool as its server describes it.
type ServerTool struct {
	Name        string `json:"name" yaml:"name"`
	Description string `json:"description,omitempty" yaml:"description"`
	// Parameters is the JSON Schema of the arguments, an object; nil takes none.
	Parameters map[string]any `json:"parameters,omitempty" yaml:"parameters"`
	// ReadOnly tools may run at the same time.
	ReadOnly bool `json:"read_only,omitempty" yaml:"read_only"`
}

// Bounds of a run's servers.
const (
	maxToolServers = 8
	// MaxServerTools bounds the tools of one server, before some of them are chosen.
	MaxServerTools = 128
	// maxServed bounds what all servers' tools add to each prompt, in bytes of JSON.
	maxServed         = 256 << 10
	defaultServerTime = time.Minute
)

// Offered are the tools of the server that the run offers.
func (s ToolServer) Offered() []ServerTool {
	if len(s.Only) == 0 {
		return s.Tools
	}
	return slices.DeleteFunc(slices.Clone(s.Tools), func(t ServerTool) bool { return !slices.Contains(s.Only, t.Name) })
}

// Called is the name by which the model knows a tool of the server. Every tool has the server's name in it, so that one more tool of one
// server renames none of another.
func (s ToolServer) Called(tool string) string { return s.Name + "__" + tool }

// IsRemote reports whether the server is not in the sandbox.
func (s ToolServer) IsRemote() bool { return s.URL != "" }

// Wall bounds one call.
func (s ToolServer) Wall() time.Duration { return cmp.Or(time.Duration(s.Timeout), defaultServerTime) }

// Choose takes what a server listed as its tools: those that are offered, in the server's order.
func (s *ToolServer) Choose(listed []ServerTool) error {
	s.Tools = listed
	if err := s.validate(); err != nil {
		return fmt.Errorf("tools.servers: %.80q: %w", s.Name, err)
	}
	s.Tools = s.Offered()
	return nil
}

// validateServers checks the servers, and that no name is taken.
func (t Tooling) validateServers(taken map[string]bool) (errs []error) {
	if len(t.Servers) > maxToolServers {
		errs = append(errs, fmt.Errorf("tools.servers: %d of them, at most %d", len(t.Servers), maxToolServers))
	}
	names, served := map[string]bool{}, 0
	for i, s := range t.Servers {
		err := s.validate()
		if err == nil && names[s.Name] {
			err = fmt.Errorf("two servers have the name")
		}
		names[s.Name] = true
		for _, tool := range s.Offered() {
			called := s.Called(tool.Name)
			if err == nil && taken[called] {
				err = fmt.Errorf("two tools are called %.80q", called)
			}
			taken[called] = true
			encoded, _ := json.Marshal(tool) // it was checked above
			served += len(encoded)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("tools.servers: %d (%.80q): %w", i, s.Name, err))
		}
	}
	if served > maxServed {
		errs = append(errs, fmt.Errorf("tools.servers: their tools are described in %d bytes, at most %d: each prompt has them; name fewer in only", served, maxServed))
	}
	return errs
}

// Check reports what is wrong with all but its tools.
func (s ToolServer) Check() error {
	switch {
	case !toolName.MatchString(s.Name):
		return fmt.Errorf("name: use letters, digits, - and _, at most 64")
	case (len(s.Command) == 0) == (s.URL == ""):
		return fmt.Errorf("give the command that starts it in the sandbox, or the url of a server outside")
	case s.URL == BuiltinEndpoint || s.URL != "" && !validEndpoint(s.URL):
		return fmt.Errorf("url %q: give one such as https://example.com/mcp, without credentials and query", withoutSecrets(s.URL))
	case s.Timeout < 0 || time.Duration(s.Timeout) > maxToolTimeout:
		return fmt.Errorf("timeout %s: must be 0 to %s", time.Duration(s.Timeout), maxToolTimeout)
	case s.URL == "":
		return checkCommand(s.Command)
	}
	return nil
}

func (s ToolServer) validate() error {
	if err := s.Check(); err != nil {
		return err
	}
	if len(s.Tools) == 0 || len(s.Tools) > MaxServerTools {
		return fmt.Errorf("%d tools, want 1 to %d: `rondo run open` lists them; where it cannot, write them down in the run file", len(s.Tools), MaxServerTools)
	}
	there := map[string]bool{}
	for _, t := range s.Tools {
		if there[t.Name] {
			return fmt.Errorf("two tools are called %.80q", t.Name)
		}
		there[t.Name] = true
	}
	for _, name := range s.Only {
		if !there[name] {
			return fmt.Errorf("only: the server has no tool %.80q", name)
		}
	}
	for _, t := range s.Offered() {
		if err := t.validate(s); err != nil {
			return fmt.Errorf("tool %.80q: %w", t.Name, err)
		}
	}
	return nil
}

func (t ServerTool) validate(s ToolServer) error {
	if called := s.Called(t.Name); !toolName.MatchString(called) {
		return fmt.Errorf("the model would know it as %.200q, which chat endpoints do not take: letters, digits, - and _, at most 64; leave it out by only", called)
	}
	if len(t.Description) > maxToolText {
		return fmt.Errorf("description of %d bytes, at most %d: leave it out by only, or write it down shorter", len(t.Description), maxToolText)
	}
	return t.Arguments().check()
}

// Arguments is what the tool takes.
func (t ServerTool) Arguments() ToolArguments { return ToolArguments(t.Parameters) }
