package runfile

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Agent is a program of one's own that makes the run's rollouts: a tool runner starts it in the
// sandbox of the rollout, and all that it asks of its model is sampled by the run's servers.
type Agent struct {
	// Command is run in the task's working directory. In it, in Env and in Files, {instruction}
	// stands for the task's instruction, {model} for the name of the policy, {base_url} and {key}
	// for the way to it, and {session} for a UUID, the same whenever the rollout is started again.
	Command []string `json:"command" yaml:"command" absent:"that of the layer's profile"`
	// Env is added to the environment of the command.
	Env map[string]string `json:"env,omitempty" yaml:"env"`
	// Files are settings of the agent that its sandbox gets, by their path below the home folder.
	Files map[string]string `json:"files,omitempty" yaml:"files"`
	// Layer is the digest of a layer of the store with the agent's own files, which the sandbox has
	// at AgentFolder, read-only; "" is none. A run file may have a name there, which
	// `rondo run open` resolves. The verifier's sandbox does not have it.
	Layer string `json:"layer,omitempty" yaml:"layer"`
}

// Names that a run file, and an agent, know its sandbox by.
const (
	AgentFolder         = "/opt/agent"
	InstructionArgument = "{instruction}"
	InstructionVariable = "RONDO_INSTRUCTION"
)

// MaxAgentArgument bounds an argument or a variable of an agent, in bytes: a kernel takes 128 KiB.
const MaxAgentArgument = 120 << 10

const (
	maxAgentCommand = 256
	maxAgentEnv     = 128
	maxAgentFiles   = 64
)

var (
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	layerName = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// validateAgent checks the agent, and what no run with one can have: it has its own prompts and
// tools, and a runner's slot for all of its rollout.
func (c *RunConfig) validateAgent() (errs []error) {
	a := c.Agent
	if a == nil {
		return nil
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("agent: "+format, args...))
		}
	}
	check(len(a.Command) > 0 && len(a.Command) <= maxAgentCommand &&
		a.Command[0] != "", "command: name a program and its arguments, at most %d", maxAgentCommand)
	for i, arg := range a.Command {
		check(len(arg) <= MaxAgentArgument && !strings.ContainsRune(arg, 0),
			"command: argument %d: at most %d bytes, and no zero byte", i, MaxAgentArgument)
		check(i > 0 || !strings.Contains(arg, InstructionArgument),
			"command: %.80q: the program's name cannot hold the instruction", arg)
	}
	check(len(a.Env) <= maxAgentEnv, "env: %d variables, at most %d", len(a.Env), maxAgentEnv)
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		value := a.Env[name]
		check(envName.MatchString(name), "env: %.80q: use letters, digits and _, at most 128", name)
		check(name != InstructionVariable, "env: %s has the instruction of each task", name)
		check(len(value) <= MaxAgentArgument &&
			!strings.ContainsRune(value, 0), "env: %.80s: at most %d bytes, and no zero byte", name, MaxAgentArgument)
	}
	check(len(a.Files) <= maxAgentFiles, "files: %d settings, at most %d", len(a.Files), maxAgentFiles)
	for _, name := range slices.Sorted(maps.Keys(a.Files)) {
		check(filepath.IsLocal(name) && path.Clean(name) == name && len(name) <= 256 &&
			!strings.ContainsAny(name, "\\\x00"),
			"files: %.80q: want a path below the home folder", name)
		check(len(a.Files[name]) <= MaxAgentArgument, "files: %.80s: at most %d bytes", name, MaxAgentArgument)
	}
	check(a.Layer == "" || layerName.MatchString(a.Layer),
		"layer %.80q: want the layer's digest, 64 hexadecimal digits", a.Layer)
	check(!c.External, "the rollouts of an external run are made elsewhere; leave out one of external and agent")
	check(c.Environment == nil, "it answers its model's calls itself; leave out environment")
	check(reflect.ValueOf(c.Tools).IsZero(), "it offers its model its own tools; leave out tools")
	check(c.SystemPrompt == "" || c.SystemPrompt == DefaultSystemPrompt,
		"it has its own prompts; leave out system_prompt")
	check(c.SummaryPrompt == "" && c.Limits.ContextFull != ContextSummarise && !c.Limits.TellRoom,
		"it decides what its prompts hold; leave out summary_prompt, limits.tell_room and limits.context_full: %s",
		ContextSummarise)
	check(c.InFlight > 0,
		"it holds a slot of a tool runner from its start to its end; set in_flight to at most as many as your tool runners have (--tool-slots)")
	check(c.MinIsolation == Isolations[0],
		"its way to the model takes a network of its own; leave min_isolation at %s", Isolations[0])
	for _, t := range c.Tasks {
		check(len(t.Steps) == 0, "task %.80q has stages, which Rondo's own loop alone can have", t.Name)
		check(t.HasWorkspace(), "task %.80q has no workspace to start it in", t.Name)
		check(len(t.Instruction) <= MaxAgentArgument,
			"task %.80q: the instruction has %d bytes, and an argument at most %d", t.Name,
			len(t.Instruction), MaxAgentArgument)
	}
	return errs
}
