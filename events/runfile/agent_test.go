package runfile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/storage"
)

// withAgent is a valid run with an agent.
func withAgent() RunConfig {
	c := DefaultRunConfig()
	missing := storage.Ref{Key: storage.BlobKey(strings.Repeat("0", 64)), SHA256: strings.Repeat("0", 64), Size: 1}
	c.Policy, c.Endpoint, c.InFlight, c.MinVerifier = "small", BuiltinEndpoint, 4, VerifierUnguarded
	c.Agent = &Agent{Command: []string{"my-agent", "-p", "Do this: " + InstructionArgument},
		Env: map[string]string{"QUIET": "1"}, Files: map[string]string{".my-agent/settings": "{}"},
		Layer: strings.Repeat("0", 64)}
	c.Tasks = []TaskSpec{{Name: "a", Instruction: "Mend it.", Workdir: "/app", Snapshot: missing, Tests: missing,
		VerifierTimeout: Duration(time.Second)}}
	return c
}

func manyFiles() map[string]string {
	files := map[string]string{}
	for i := range maxAgentFiles + 1 {
		files[fmt.Sprint("file", i)] = ""
	}
	return files
}

// TestAgent: what no run with an agent can have is refused with a sentence that names it.
func TestAgent(t *testing.T) {
	c := withAgent()
	c.Endpoint, c.EndpointAPI = "http://127.0.0.1:8000/v1", APITokens
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*RunConfig){
		"command: name a program":        func(c *RunConfig) { c.Agent.Command = nil },
		"the program's name cannot hold": func(c *RunConfig) { c.Agent.Command = []string{"{instruction}"} },
		"argument 1: at most":            func(c *RunConfig) { c.Agent.Command = []string{"x", "a\x00b"} },
		`env: "A B"`:                     func(c *RunConfig) { c.Agent.Env = map[string]string{"A B": ""} },
		"RONDO_INSTRUCTION has": func(
			c *RunConfig) {
			c.Agent.Env = map[string]string{InstructionVariable: "x"}
		},
		`layer "../etc"`:                  func(c *RunConfig) { c.Agent.Layer = "../etc" },
		`layer "codex"`:                   func(c *RunConfig) { c.Agent.Layer = "codex" },
		`files: "../x"`:                   func(c *RunConfig) { c.Agent.Files = map[string]string{"../x": ""} },
		`files: "/etc/x"`:                 func(c *RunConfig) { c.Agent.Files = map[string]string{"/etc/x": ""} },
		"files: 65 settings":              func(c *RunConfig) { c.Agent.Files = manyFiles() },
		"leave out one of external":       func(c *RunConfig) { c.External = true },
		"leave out environment":           func(c *RunConfig) { c.Environment = &Environment{Name: "e"} },
		"leave out tools":                 func(c *RunConfig) { c.Tools.Set = toolset.Composer },
		"leave out system_prompt":         func(c *RunConfig) { c.SystemPrompt = "Be good." },
		"leave out summary_prompt":        func(c *RunConfig) { c.Limits.TellRoom = true },
		"set in_flight to at most":        func(c *RunConfig) { c.InFlight = AutoInFlight },
		"leave min_isolation at":          func(c *RunConfig) { c.MinIsolation = Isolations[1] },
		"has stages":                      func(c *RunConfig) { c.Tasks[0].Steps = []StepSpec{{Name: "one"}} },
		"has no workspace to start it in": func(c *RunConfig) { c.Tasks[0].Snapshot = storage.Ref{} },
		"the instruction has 122881 bytes, and ": func(c *RunConfig) {
			c.Tasks[0].Instruction = strings.Repeat("x",
				MaxAgentArgument+1)
		},
	} {
		c := withAgent()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "agent: ") {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
