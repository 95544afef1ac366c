package toolset

import (
	"cmp"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/wording"
)

// Server is a server of the Model Context Protocol whose tools the agents have, too: a
// program in each rollout's sandbox, which is talked to over its standard input and output,
// or an endpoint outside of it.
type Server struct {
	// Name comes before those of its tools: the model knows them as NAME__TOOL.
	Name string `json:"name" yaml:"name"`
	// Command starts the server in the sandbox. It is started by the first call there,
	// and ends with the sandbox.
	Command []string `json:"command,omitempty" yaml:"command"`
	// URL is the server's where it has no command. The tool runner asks it, with the key
	// that it has for that URL.
	URL string `json:"url,omitempty" yaml:"url"`
	// Only are the tools that are offered, by the server's names; none is all.
	Only []string `json:"only,omitempty" yaml:"only" absent:"all tools of the server"`
	// Timeout bounds one call; 0 is a minute.
	Timeout wording.Duration `json:"timeout,omitempty" yaml:"timeout" absent:"1m"`
	// Tools are what the server offers. Where the run file names none, the server is asked when the
	// run is opened. Its answer holds for the whole run.
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

// Bounds of servers.
const (
	// MaxServerTools bounds the tools of one server, before some of them are chosen.
	MaxServerTools    = 128
	defaultServerTime = time.Minute
)

// Offered are the tools of the server that the run offers.
func (s Server) Offered() []ServerTool {
	if len(s.Only) == 0 {
		return s.Tools
	}
	return slices.DeleteFunc(slices.Clone(s.Tools), func(t ServerTool) bool { return !slices.Contains(s.Only, t.Name) })
}

// Called is the name by which the model knows a tool of the server. Every tool has the server's
// name in it, so that one more tool of one server renames none of another.
func (s Server) Called(tool string) string { return s.Name + "__" + tool }

// IsRemote reports whether the server is not in the sandbox.
func (s Server) IsRemote() bool { return s.URL != "" }

// Wall bounds one call.
func (s Server) Wall() time.Duration { return cmp.Or(time.Duration(s.Timeout), defaultServerTime) }

// Arguments is what the tool takes.
func (t ServerTool) Arguments() Arguments { return Arguments(t.Parameters) }
