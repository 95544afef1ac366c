package runfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/wording"
)

// Duration reads and writes as text: "90s".
type Duration = wording.Duration

// BuiltinEndpoint is the endpoint of runs that use the built-in policy, wherever
// the deployment serves it.
const BuiltinEndpoint = "builtin"

// RunConfig is the whole configuration of a run. It travels in RunOpened, so a run can be
// read without anything but its log and the store. A key whose default in a run file is not
// empty has to be in RunOpened.
type RunConfig struct {
	// Policy is the name of the weights that the run trains and the model
	// name asked of the endpoint.
	Policy string `json:"policy" yaml:"policy"`
	// Endpoint is the base URL of the OpenAI-compatible inference server, for example
	// http://127.0.0.1:8000/v1, or "builtin".
	Endpoint string `json:"endpoint" yaml:"endpoint"`
	// Endpoints are several of them, in place of one.
	Endpoints []Endpoint `json:"endpoints,omitempty" yaml:"endpoints"`
	// EndpointAPI is how the endpoint is asked: one of EndpointAPIs; "" is APIChat.
	EndpointAPI string `json:"endpoint_api,omitempty" yaml:"endpoint_api" absent:"chat"`
	// PolicyVersion pins the version that is sampled, whatever is published meanwhile; nil takes
	// what the endpoint serves.
	PolicyVersion *int64 `json:"policy_version,omitempty" yaml:"policy_version"`
	Seed          int64  `json:"seed,omitempty" yaml:"seed"`
	// Steps ends the run after that many batches; 0 means until it is closed.
	Steps int64 `json:"steps,omitempty" yaml:"steps"`
	// Epochs makes an evaluation: each task is tried in that many groups, and the run closes by
	// itself. It needs no feeds, and nothing paces it but InFlight.
	Epochs int `json:"epochs,omitempty" yaml:"epochs"`
	// InFlight bounds the rollouts that are under way at once. AutoInFlight, the default, bounds
	// those that wait for a turn by the turns that the inference servers can sample at once. 0
	// leaves a training run to its staleness; an evaluation, which has none, refuses it.
	// Outsiders' rollouts never count.
	InFlight  InFlight `json:"in_flight" yaml:"in_flight"`
	GroupSize int      `json:"group_size" yaml:"group_size"`
	Feeds     []Feed   `json:"feeds,omitempty" yaml:"feeds"`
	// Teachers say how likely they find the tokens of the run's rollouts; feeds
	// name those that they want.
	Teachers []Teacher `json:"teachers,omitempty" yaml:"teachers"`
	// Trackers are experiment trackers to which `rondo track` writes the run's
	// training steps. No service does.
	Trackers  []Tracker `json:"trackers,omitempty" yaml:"trackers"`
	Staleness Staleness `json:"staleness" yaml:"staleness"`
	Advantage Advantage `json:"advantage" yaml:"advantage"`
	Shaping   Shaping   `json:"shaping,omitzero" yaml:"shaping"`
	Filters   Filters   `json:"filters,omitzero" yaml:"filters"`
	// Scorer composes rewards of what verifiers report.
	Scorer Scoring `json:"scorer,omitzero" yaml:"scorer"`
	// Curriculum draws tasks by their measured pass rates; nil draws all of them equally often.
	Curriculum *Curriculum `json:"curriculum,omitempty" yaml:"curriculum"`
	// External runs open no groups of their own: all rollouts are submitted to the intake.
	External bool     `json:"external,omitempty" yaml:"external"`
	Sampling Sampling `json:"sampling" yaml:"sampling"`
	// TokenColumns are what the servers are asked for beside tokens and their
	// log-probabilities; nil is nothing.
	TokenColumns *TokenColumns `json:"token_columns,omitempty" yaml:"token_columns"`
	// SystemPrompt begins the conversation of the run's own rollouts; {workdir} in it stands for
	// the task's working directory. "" is none.
	SystemPrompt string `json:"system_prompt" yaml:"system_prompt"`
	// SummaryPrompt asks the model to sum its work up; "" is DefaultSummaryPrompt.
	SummaryPrompt string `json:"summary_prompt,omitempty" yaml:"summary_prompt" absent:"the default request"`
	Limits        Limits `json:"limits" yaml:"limits"`
	Pool          string `json:"pool" yaml:"pool"` // the pool of tool runners
	// MinIsolation is the weakest isolation of sandboxes under which the run's tools and verifiers
	// may run: one of Isolations. Without it the operator of a runner decides alone.
	MinIsolation string `json:"min_isolation" yaml:"min_isolation"`
	// MinVerifier is the least separation between the tests of the run's tasks and the code that
	// they test, one of Verifiers. Without it a run that trains takes tasks with separate tests
	// alone, and an evaluation takes every task.
	MinVerifier string `json:"min_verifier,omitempty" yaml:"min_verifier" absent:"separate in a run that trains, any in an evaluation"`
	// Features are what the run wants beside the defaults; Traffic belongs to one of them.
	Features []string        `json:"features,omitempty" yaml:"features"`
	Traffic  Traffic         `json:"traffic,omitzero" yaml:"traffic"`
	Tools    toolset.Tooling `json:"tools,omitzero" yaml:"tools"`
	// Environment answers the turns of the run's rollouts, in a process of a user's own; nil
	// leaves that to tool runners.
	Environment *Environment `json:"environment,omitempty" yaml:"environment"`
	// Agent makes the run's rollouts in the place of Rondo's own loop; nil is none.
	Agent *Agent `json:"agent,omitempty" yaml:"agent"`
	// Conversations say which conversations of an agent or a harness are trained on,
	// and which another model answers. The first rule that takes one decides; one that
	// none takes is trained on.
	Conversations []ConversationRule `json:"conversations,omitempty" yaml:"conversations"`
	// Vision: the run's models see images. Without it messages of agents and
	// harnesses may have none.
	Vision bool `json:"vision,omitempty" yaml:"vision"`
	// Network is what programs in the agents' sandboxes may reach; nil is nothing.
	Network *netaccess.Network `json:"network,omitempty" yaml:"network"`
	// Repositories are those whose index the run's agents search: the run is told of every update.
	Repositories []string   `json:"repositories,omitempty" yaml:"repositories"`
	Log          Log        `json:"log,omitzero" yaml:"log"`
	Tasks        []TaskSpec `json:"tasks,omitempty" yaml:"-"`
}

// Limits bound one rollout, and in the end the run.
type Limits struct {
	Turns  int `json:"turns" yaml:"turns"`
	Tokens int `json:"tokens" yaml:"tokens"` // prompt and completion of the last turn together
	// Context is how many tokens the server's context has for prompt and answer
	// together; 0 asks the server.
	Context int `json:"context,omitempty" yaml:"context"`
	// ContextFull is what becomes of a rollout whose conversation has grown to the context:
	// ContextTruncate, which "" is, too, or ContextSummarise.
	ContextFull string `json:"context_full,omitempty" yaml:"context_full" absent:"truncate"`
	// Summaries is how often a rollout may sum its work up; 0 is DefaultSummaries. Behind that it
	// ends as one that is truncated.
	Summaries int `json:"summaries,omitempty" yaml:"summaries" absent:"4"`
	// TellRoom tells the model behind each turn's tool results how many tokens
	// of its context are used.
	TellRoom bool `json:"tell_room,omitempty" yaml:"tell_room"`
	// Disk is the most that the sandboxes of a task may write, which gets it if it asks for
	// as much or for nothing; 0 is DefaultDiskMB. More takes tool runners and scorers that
	// keep workspaces on a disk.
	Disk Size `json:"disk,omitempty" yaml:"disk" absent:"the default size"`
	// Timeout is how much time the agent of a rollout may use, sampling and tools. The plane gives
	// a rollout up that does not go on for as long as is left of it: see events.Clock.
	Timeout Duration `json:"timeout" yaml:"timeout"`
	// TurnTimeout bounds one turn.
	TurnTimeout TurnTimeout `json:"turn_timeout,omitzero" yaml:"turn_timeout"`
	// Tries of one stage before the rollout fails.
	Tries int `json:"tries" yaml:"tries"`
	// AgentRestarts is how often the agent of a rollout is started anew that the machine lost
	// behind recorded turns, before the rollout fails.
	AgentRestarts int `json:"agent_restarts" yaml:"agent_restarts"`
	// HopelessGroups pauses the run when as many groups' rollouts have failed at one stage, within
	// FailureWindow; 0 is a run without a circuit breaker.
	HopelessGroups int `json:"hopeless_groups" yaml:"hopeless_groups"`
	// FailureWindow is how many groups' rollouts the circuit breaker looks back at: it pauses the
	// run when, of the latest outcomes of FailureWindow groups' rollouts, HopelessGroups groups'
	// failed at one stage, whatever succeeded between them, or three quarters failed at any. A
	// window that is shorter than HopelessGroups or UntrainableGroups is as long as these.
	FailureWindow int `json:"failure_window" yaml:"failure_window"`
	// UntrainableGroups pauses the run when, in the same window, that many groups' rollouts have no
	// tokens that can be trained on; 0 does not.
	UntrainableGroups int `json:"untrainable_groups" yaml:"untrainable_groups"`
	// NoSignalGroups pauses the run when at most one in 20 of that many latest groups was batched,
	// as where all rewards of a group are equal; 0 does not.
	NoSignalGroups int `json:"no_signal_groups" yaml:"no_signal_groups"`
	// LogprobGap pauses the run when the first feed's trainer states a logprob_gap whose mean_abs,
	// in nats, is larger; 0 does not.
	LogprobGap float64 `json:"logprob_gap,omitempty" yaml:"logprob_gap"`
	// BudgetTokens pauses the run when its turns have had as many prompt and completion tokens
	// together; 0 is no bound. Resumed, it gets as many again.
	BudgetTokens int64 `json:"budget_tokens,omitempty" yaml:"budget_tokens"`
	// TokensPerMinute bounds what one process asks of the run's inference servers, prompts and
	// answers together; 0 is no bound.
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty" yaml:"tokens_per_minute"`
}

// TaskSpec is a task as a run uses it: its texts and settings, its files by reference.
type TaskSpec struct {
	Name        string `json:"name"`
	Digest      string `json:"digest"`
	Instruction string `json:"instruction"`
	// Data is what the run's environment and its reward function know of the
	// task, and its agent does not.
	Data            TaskData          `json:"data,omitempty"`
	Workdir         string            `json:"workdir"`
	Toolchains      []string          `json:"toolchains,omitempty"`
	Env             map[string]string `json:"env,omitempty"`
	VerifierEnv     map[string]string `json:"verifier_env,omitempty"`
	VerifierTimeout Duration          `json:"verifier_timeout"`
	// AgentTimeout is how much time of its own the agent may use, in a task of several steps in
	// each of them: see events.Rollout.AgentTime. 0 is as much as the run allows.
	AgentTimeout Duration `json:"agent_timeout,omitempty"`
	MemoryMB     int      `json:"memory_mb,omitempty"`
	// DiskMB is what the task's sandboxes may write; 0 is DefaultDiskMB. See Limits.DiskMB.
	DiskMB int `json:"disk_mb,omitempty"`
	CPUs   int `json:"cpus,omitempty"`
	// Image is the container image whose root file system the sandbox has; "" for the runner's own.
	Image string `json:"image,omitempty"`
	// ImageID is the image's digest, "sha256:" and 64 hex digits.
	ImageID string `json:"image_id,omitempty"`
	// VerifierImage is the image whose root file system the tests have, "" for that of Image;
	// VerifierImageID is its digest.
	VerifierImage   string `json:"verifier_image,omitempty"`
	VerifierImageID string `json:"verifier_image_id,omitempty"`
	// Labels are those that a tool runner must have.
	Labels []string `json:"labels,omitempty"`
	// Network is the most that the task wants of the run's network: nothing where it allows
	// nothing. nil is all that the run allows.
	Network *netaccess.Network `json:"network,omitempty"`
	// Protected are patterns of paths that no agent may change: the tests meet them as the snapshot
	// has them. With "!" a pattern takes paths back; with "+" it names what is the agent's to
	// change, and all else is protected.
	Protected []string `json:"protected,omitempty"`
	// Deterministic are command lines whose answer follows from the workspace and the shell alone:
	// where nothing but them and file tools has run before, what one answered without changing the
	// workspace is answered again.
	Deterministic []string `json:"deterministic,omitempty"`
	// Collect are commands that run over an agent's final workspace before it is scored.
	Collect  []Hook      `json:"collect,omitempty"`
	Snapshot storage.Ref `json:"snapshot,omitzero"`
	Tests    storage.Ref `json:"tests,omitzero"`
	// Modules are what builds and tests in the task's sandboxes find, packed as a snapshot
	// is: with the toolchain go a module proxy's files, and else with node a list of packages
	// of npm and their archives.
	Modules storage.Ref `json:"modules,omitzero"`
	// Verifier is VerifierSeparate where the tests reach the code under test in another sandbox
	// alone, VerifierInProcess where they run in process with canaries, and "" or VerifierUnguarded
	// where they do so without.
	Verifier string `json:"verifier,omitempty"`
	// Transcript lets the tests, and the run's judge, read what was said in the rollout.
	Transcript bool `json:"transcript,omitempty"`
	// Steps are given to the agent one after the other; Instruction and Tests are of no account
	// then. RewardStrategy is one of the Strategy constants, "" is the mean.
	Steps          []StepSpec `json:"steps,omitempty"`
	RewardStrategy string     `json:"reward_strategy,omitempty"`
}

// TaskData is JSON whose numbers keep all of their digits: an answer of 2^53 + 1 is not 2^53.
type TaskData map[string]any

// UnmarshalJSON reads an object.
func (d *TaskData) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode((*map[string]any)(d))
}

// Hook is a command of a task with the time that it may take.
type Hook struct {
	Command string   `json:"command"`
	Timeout Duration `json:"timeout"`
}

// Bounds of a task's deterministic commands.
const (
	maxDeterministic     = 64
	maxDeterministicLine = 4 << 10 // bytes
)

// CheckDeterministic says what is wrong with a task's list of deterministic commands.
func CheckDeterministic(lines []string) error {
	if len(lines) > maxDeterministic {
		return fmt.Errorf("%d commands, the limit is %d", len(lines), maxDeterministic)
	}
	for _, line := range lines {
		if strings.TrimSpace(line) == "" || len(line) > maxDeterministicLine || strings.ContainsRune(line, 0) {
			return fmt.Errorf("%.80q: want a command line of at most %d bytes", line, maxDeterministicLine)
		}
	}
	return nil
}

// DefaultRunConfig is what a run file changes.
func DefaultRunConfig() RunConfig {
	return RunConfig{
		GroupSize: 8,
		Feeds:     []Feed{{Name: "trainer", GroupsPerBatch: 8}},
		Staleness: Staleness{Max: 8},
		InFlight:  AutoInFlight,
		Advantage: Advantage{Estimator: "mean_centred"},
		Sampling:  NeutralSampling(),
		Limits: Limits{Turns: 32, Tokens: 131072, Timeout: Duration(10 * time.Minute), Tries: 5, AgentRestarts: 3,
			HopelessGroups: 3, FailureWindow: 6, UntrainableGroups: 2, NoSignalGroups: 64},
		Pool: "pool-shell", MinIsolation: Isolations[0], SystemPrompt: DefaultSystemPrompt,
	}
}

// Isolations are the levels of isolation of sandboxes, the strongest first; package
// sandbox says what they are.
var Isolations = []string{"namespaces", "landlock", "none"}

// ErrNoTask means that a run knows no task of that name.
var ErrNoTask = errors.New("unknown task")

// Task finds a task of the configuration by name: ErrNoTask. Queries are tasks too;
// eventlog.Reader.Task finds both.
func (c *RunConfig) Task(name string) (TaskSpec, error) {
	i := slices.IndexFunc(c.Tasks, func(t TaskSpec) bool { return t.Name == name })
	if i < 0 {
		return TaskSpec{}, fmt.Errorf("%w: the run has no task %q", ErrNoTask, name)
	}
	return c.Tasks[i], nil
}

// AssumedVersion is the version of turns whose server reports none: the one that the run pins, and
// so asks for by name, or UnknownVersion.
func (c *RunConfig) AssumedVersion() int64 {
	if c.PolicyVersion == nil {
		return UnknownVersion
	}
	return *c.PolicyVersion
}

// Model is the name of the model that the endpoint is asked for: the policy's, or
// NAME@VERSION of a pinned one.
func (c *RunConfig) Model() string {
	if c.PolicyVersion == nil {
		return c.Policy
	}
	return fmt.Sprintf("%s@%d", c.Policy, *c.PolicyVersion)
}

// HasVerifier reports whether the task has tests. Rollouts of one that has
// none are scored by feedback.
func (t TaskSpec) HasVerifier() bool { return t.Tests.Key != "" }

// Validate reports every setting that no service could work with, with its
// value and what is allowed.
func (c *RunConfig) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(ValidToken(c.Policy), "policy %q: use letters, digits, - and _, at most 64; "+
		"a server that knows it by another name is asked for endpoints: [{url: URL, model: NAME}]", c.Policy)
	check(c.GroupSize >= 1 && c.GroupSize <= 1024, "group_size %d: must be 1 to 1024", c.GroupSize)
	check(c.Steps >= 0, "steps %d: must not be negative", c.Steps)
	errs = append(errs, c.validateEndpoints()...)
	errs = append(errs, c.validateEvaluation()...)
	check(slices.Contains(Estimators, c.Advantage.Estimator),
		"advantage.estimator %q: must be one of %v", c.Advantage.Estimator, Estimators)
	errs = append(errs, c.validateSampling()...)
	errs = append(errs, c.validateTokenColumns()...)
	check(c.Limits.Turns >= 1 && c.Limits.Turns <= 10000, "limits.turns %d: must be 1 to 10000", c.Limits.Turns)
	check(c.Limits.Tokens >= 1, "limits.tokens %d: must be positive", c.Limits.Tokens)
	check(c.Limits.Context >= 0, "limits.context %d: must not be negative; 0 asks the server", c.Limits.Context)
	check(c.Limits.Timeout > 0, "limits.timeout %s: must be positive", time.Duration(c.Limits.Timeout))
	c.Limits.validateTurnTimeout(check)
	check(c.Limits.Tries >= 1 && c.Limits.Tries <= Deliveries,
		"limits.tries %d: must be 1 to %d", c.Limits.Tries, Deliveries)
	check(c.Limits.AgentRestarts >= 0 && c.Limits.AgentRestarts < Deliveries,
		"limits.agent_restarts %d: must be 0 to %d",
		c.Limits.AgentRestarts, Deliveries-1)
	check(c.Limits.HopelessGroups >= 0 && c.Limits.HopelessGroups <= 10000,
		"limits.hopeless_groups %d: must be 0 to 10000", c.Limits.HopelessGroups)
	c.Limits.validateDisk(check)
	errs = append(errs, c.Limits.validateBreaker()...)
	errs = append(errs, c.validateSummaries()...)
	check(c.Limits.BudgetTokens >= 0, "limits.budget_tokens %d: must not be negative", c.Limits.BudgetTokens)
	check(validPool(c.Pool), "pool %q: use letters, digits, - and _, at most %d, not %s, nor beginning with %s", c.Pool,
		maxPool, RouteFinal, runnerPrefix)
	check(c.MinIsolation == "" || slices.Contains(Isolations, c.MinIsolation),
		"min_isolation %q: must be one of %v", c.MinIsolation, Isolations)
	check(c.MinVerifier == "" || slices.Contains(Verifiers, c.MinVerifier),
		"min_verifier %q: must be one of %v", c.MinVerifier, Verifiers)
	check(len(c.Tasks) > 0 || c.External, "tasks: the run has none")
	check(!c.Vision || c.External || c.Agent != nil, "vision: only harnesses and agents send images; leave it out")
	check(!c.Vision || len(c.Teachers) == 0,
		"vision: teachers are given tokens alone, and score what they do not see; leave out one of vision and teachers")
	errs = append(errs, c.Scorer.validate()...)
	errs = append(errs, c.validateTraining()...)
	errs = append(errs, c.validateTeachers()...)
	errs = append(errs, c.validateTrackers()...)
	errs = append(errs, c.validateFeatures()...)
	errs = append(errs, c.validateTools()...)
	errs = append(errs, c.validateEnvironment()...)
	errs = append(errs, c.validateAgent()...)
	errs = append(errs, c.validateConversations()...)
	errs = append(errs, c.Network.Validate()...)
	errs = append(errs, c.validateRepositories()...)
	errs = append(errs, c.Log.validate()...)
	return errors.Join(append(errs, c.validateTasks()...)...)
}

// validateEvaluation checks what makes a run an evaluation, and of which version.
func (c *RunConfig) validateEvaluation() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Epochs >= 0 && c.Epochs <= 10000, "epochs %d: must be 0 to 10000", c.Epochs)
	check(c.InFlight == AutoInFlight || c.InFlight >= 0 && c.InFlight <= maxInFlight,
		"in_flight %d: must be 0 to %d, or %s", int(c.InFlight), maxInFlight, autoInFlight)
	if v := c.PolicyVersion; v != nil {
		check(*v >= 0, "policy_version %d: must not be negative", *v)
	}
	if c.Epochs > 0 {
		check(c.InFlight != 0,
			"in_flight 0, or left out: an evaluation has no staleness that paces it; say how many rollouts may be under way, or %s", autoInFlight)
		check(c.Steps == 0,
			"epochs %d and steps %d: an evaluation ends when its tasks are tried; leave out one of them", c.Epochs,
			c.Steps)
		check(c.Curriculum == nil, "epochs %d: an evaluation tries all tasks equally often; leave out the curriculum",
			c.Epochs)
		check(!c.External, "epochs %d: an external run tries no tasks of its own", c.Epochs)
	}
	return errs
}

func (c *RunConfig) validateTasks() (errs []error) {
	seen := map[string]bool{}
	var bare []string // tasks that are a text alone
	for i, t := range c.Tasks {
		check := func(ok bool, format string, args ...any) {
			if !ok {
				errs = append(errs, fmt.Errorf("tasks: %d (%.80q): "+format, append([]any{i, t.Name}, args...)...))
			}
		}
		check(t.Name != "", "name: it has none")
		check(!seen[t.Name], "name: it appears twice")
		check(path.IsAbs(t.Workdir), "workdir %q: must be an absolute path", t.Workdir)
		check(t.VerifierTimeout >= 0, "verifier_timeout %s: must not be negative", time.Duration(t.VerifierTimeout))
		check(t.AgentTimeout >= 0, "agent_timeout %s: must not be negative", time.Duration(t.AgentTimeout))
		check(t.DiskMB == c.Limits.DiskMB(t.DiskMB),
			"disk_mb %d: must be 0, or more than %d and at most limits.disk (%s)", t.DiskMB,
			DefaultDiskMB, c.Limits.Disk)
		check(t.MemoryMB >= 0, "memory_mb %d: must not be negative", t.MemoryMB)
		t.validateNeeds(check)
		err := c.checkNetworkOf(t)
		check(err == nil, "%v", err)
		t.ValidateSteps(check)
		err = CheckDeterministic(t.Deterministic)
		check(err == nil, "deterministic: %v", err)
		textAlone := !t.HasWorkspace() && !t.HasVerifier()
		if textAlone {
			bare = append(bare, t.Name)
		}
		if t.HasWorkspace() || !c.workspaceless() && !textAlone {
			err = t.Snapshot.Validate()
			check(err == nil, "snapshot: %v", err)
		}
		if t.Modules != (storage.Ref{}) {
			err = t.Modules.Validate()
			check(err == nil, "modules: %v", err)
			check(slices.Contains(t.Toolchains, "go") ||
				slices.Contains(t.Toolchains, "node"), "modules: they are for the toolchains go and node")
		}
		if !textAlone {
			err = t.Tests.Validate()
			check(err == nil, "tests: %v", err)
		}
		check(t.Verifier == "" || slices.Contains(Verifiers, t.Verifier),
			"verifier %q: must be one of %v", t.Verifier, Verifiers)
		seen[t.Name] = true
	}
	if len(bare) > 0 && !c.workspaceless() {
		errs = append(errs,
			fmt.Errorf("tasks: %d of them, the first one %.80q, have neither a workspace nor tests: name in the run file "+
				"who rates them (scorer: {function: NAME}) or plays them (environment: {name: NAME})", len(bare),
				bare[0]))
	}
	errs = append(errs, c.validateSeparation()...)
	if n := len(c.DifferentNeeds()); n > maxNeeds {
		errs = append(errs,
			fmt.Errorf("tasks: they have %d different needs (toolchains, memory, labels and so on), the limit is %d", n,
				maxNeeds))
	}
	return errs
}

// UnknownVersion is the policy version of what was sampled without anybody
// reporting with which one.
const UnknownVersion = -1

// Deliveries bounds how often a message is delivered. A handler that gives up does so earlier; the
// bound is for messages that crash their worker each time.
const Deliveries = 20
