package events

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// Duration is a time.Duration that reads and writes as text ("90s") in JSON and YAML.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: use a number with a unit, for example 90s or 5m", text)
	}
	*d = Duration(v)
	return nil
}

// BuiltinEndpoint is the endpoint of runs that use the built-in policy, wherever the deployment serves it.
const BuiltinEndpoint = "builtin"

// RunConfig is the whole configuration of a run. It travels in RunOpened, so a run can be read without
// anything but its log and the store.
type RunConfig struct {
	// Policy is the name of the weights that the run trains and the model name asked of the endpoint.
	Policy string `json:"policy" yaml:"policy"`
	// Endpoint is the base URL of the OpenAI-compatible inference server, for example http://127.0.0.1:8000/v1,
	// or "builtin".
	Endpoint string `json:"endpoint" yaml:"endpoint"`
	// Endpoints are several of them, in place of one.
	Endpoints []Endpoint `json:"endpoints,omitempty" yaml:"endpoints"`
	// PolicyVersion pins the version that is sampled, whatever is published meanwhile; nil takes what the endpoint serves.
	PolicyVersion *int64 `json:"policy_version,omitempty" yaml:"policy_version"`
	Seed          int64  `json:"seed,omitempty" yaml:"seed"`
	// Steps ends the run after that many batches; 0 means until it is closed.
	Steps int64 `json:"steps,omitempty" yaml:"steps"`
	// Epochs makes an evaluation: each task is tried in that many groups, and the run closes by itself. It needs no feeds,
	// and nothing paces it but InFlight.
	Epochs int `json:"epochs,omitempty" yaml:"epochs"`
	// InFlight bounds the rollouts of an evaluation that are under way at once; 0 is 128.
	InFlight  int       `json:"in_flight,omitempty" yaml:"in_flight"`
	GroupSize int       `json:"group_size" yaml:"group_size"`
	Feeds     []Feed    `json:"feeds,omitempty" yaml:"feeds"`
	Staleness Staleness `json:"staleness" yaml:"staleness"`
	Advantage Advantage `json:"advantage" yaml:"advantage"`
	Shaping   Shaping   `json:"shaping,omitzero" yaml:"shaping"`
	Filters   Filters   `json:"filters,omitzero" yaml:"filters"`
	// Scorer composes rewards of what verifiers report.
	Scorer Scoring `json:"scorer,omitzero" yaml:"scorer"`
	// Curriculum draws tasks by their measured pass rates; nil draws all of them equally often.
	Curriculum *Curriculum `json:"curriculum,omitempty" yaml:"curriculum"`
	// External runs open no groups of their own: all rollouts come through the door.
	External bool     `json:"external,omitempty" yaml:"external"`
	Sampling Sampling `json:"sampling" yaml:"sampling"`
	Limits   Limits   `json:"limits" yaml:"limits"`
	Pool     string   `json:"pool" yaml:"pool"` // the pool of tool runners
	// MinIsolation is the weakest isolation of sandboxes under which the run's tools and verifiers may run: one of Isolations. Without
	// it, as in older runs, whatever the operator of a runner allows.
	MinIsolation string `json:"min_isolation,omitempty" yaml:"min_isolation"`
	// Features are what the run wants beside the defaults; Traffic belongs to one of them.
	Features []string `json:"features,omitempty" yaml:"features"`
	Traffic  Traffic  `json:"traffic,omitzero" yaml:"traffic"`
	Tools    Tooling  `json:"tools,omitzero" yaml:"tools"`
	// Repositories are those whose index the run's agents search: the run is told of every update.
	Repositories []string   `json:"repositories,omitempty" yaml:"repositories"`
	Tasks        []TaskSpec `json:"tasks,omitempty" yaml:"-"`
}

// Sampling is passed to the inference server.
type Sampling struct {
	Temperature float64 `json:"temperature" yaml:"temperature"`
	// MaxTokens bounds one turn.
	MaxTokens int `json:"max_tokens" yaml:"max_tokens"`
}

// Limits bound one rollout, and in the end the run.
type Limits struct {
	Turns  int `json:"turns" yaml:"turns"`
	Tokens int `json:"tokens" yaml:"tokens"` // prompt and completion of the last turn together
	// Timeout runs from the start of the rollout until its outcome.
	Timeout Duration `json:"timeout" yaml:"timeout"`
	// Tries of one stage before the rollout fails.
	Tries int `json:"tries" yaml:"tries"`
	// HopelessGroups pauses the run when as many groups' rollouts have failed in a row, at whatever stage; 0 looks at the
	// endpoint's failures alone.
	HopelessGroups int `json:"hopeless_groups,omitempty" yaml:"hopeless_groups"`
	// BudgetTokens pauses the run when its turns have had as many prompt and completion tokens together; 0 is no bound. Resumed, it
	// gets as many again.
	BudgetTokens int64 `json:"budget_tokens,omitempty" yaml:"budget_tokens"`
	// TokensPerMinute bounds what one process asks of the run's inference servers, prompts and answers together; 0 is no bound.
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty" yaml:"tokens_per_minute"`
}

// TaskSpec is a task as a run uses it: its texts and settings, its files by reference.
type TaskSpec struct {
	Name            string            `json:"name"`
	Digest          string            `json:"digest"`
	Instruction     string            `json:"instruction"`
	Workdir         string            `json:"workdir"`
	Toolchains      []string          `json:"toolchains,omitempty"`
	Env             map[string]string `json:"env,omitempty"`
	VerifierEnv     map[string]string `json:"verifier_env,omitempty"`
	VerifierTimeout Duration          `json:"verifier_timeout"`
	// AgentTimeout is how long the agent may work from its first turn on, in a task of several steps in each of them; 0 is as long as the run
	// allows.
	AgentTimeout Duration `json:"agent_timeout,omitempty"`
	MemoryMB     int      `json:"memory_mb,omitempty"`
	CPUs         int      `json:"cpus,omitempty"`
	// Image is the container image whose root file system the sandbox has; "" for the runner's own.
	Image string `json:"image,omitempty"`
	// ImageID is the image's digest, "sha256:" and 64 hex digits.
	ImageID string `json:"image_id,omitempty"`
	// Labels are those that a tool runner must have.
	Labels []string `json:"labels,omitempty"`
	// Protected are patterns of paths that no agent may change: the tests meet them as the snapshot has them.
	Protected []string `json:"protected,omitempty"`
	// Deterministic are command lines whose answer follows from the workspace and the shell alone: where nothing but them and file tools has
	// run before, what one answered without changing the workspace is answered again.
	Deterministic []string `json:"deterministic,omitempty"`
	// Collect are commands that run over an agent's final workspace before it is scored.
	Collect  []Hook      `json:"collect,omitempty"`
	Snapshot storage.Ref `json:"snapshot"`
	Tests    storage.Ref `json:"tests"`
	// Steps are given to the agent one after the other; Instruction and Tests are of no account then. RewardStrategy is one of the
	// Strategy constants, "" is the mean.
	Steps          []StepSpec `json:"steps,omitempty"`
	RewardStrategy string     `json:"reward_strategy,omitempty"`
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
		Staleness: Staleness{Max: 1},
		Advantage: Advantage{Estimator: "mean_centred"},
		Sampling:  Sampling{Temperature: 1, MaxTokens: 4096},
		Limits:    Limits{Turns: 32, Tokens: 131072, Timeout: Duration(10 * time.Minute), Tries: 5, HopelessGroups: 3},
		Pool:      "pool-shell", MinIsolation: Isolations[0],
	}
}

// Isolations are the levels of isolation of sandboxes, the strongest first; package sandbox says what they are.
var Isolations = []string{"namespaces", "landlock", "none"}

// ErrNoTask: a run knows no task of that name.
var ErrNoTask = errors.New("unknown task")

// Task finds a task of the configuration by name: ErrNoTask. Queries are tasks too; eventlog.Log.Task finds both.
func (c *RunConfig) Task(name string) (TaskSpec, error) {
	i := slices.IndexFunc(c.Tasks, func(t TaskSpec) bool { return t.Name == name })
	if i < 0 {
		return TaskSpec{}, fmt.Errorf("%w: the run has no task %q", ErrNoTask, name)
	}
	return c.Tasks[i], nil
}

// Model is the name of the model that the endpoint is asked for: the policy's, or NAME@VERSION of a pinned one.
func (c *RunConfig) Model() string {
	if c.PolicyVersion == nil {
		return c.Policy
	}
	return fmt.Sprintf("%s@%d", c.Policy, *c.PolicyVersion)
}

// HasVerifier reports whether the task has tests. Rollouts of one that has none are scored by feedback.
func (t TaskSpec) HasVerifier() bool { return t.Tests.Key != "" }

// Validate reports every setting that no service could work with, with its value and what is allowed.
func (c *RunConfig) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(ValidToken(c.Policy), "policy %q: use letters, digits, - and _, at most 64", c.Policy)
	check(c.GroupSize >= 1 && c.GroupSize <= 1024, "group_size %d: must be 1 to 1024", c.GroupSize)
	check(c.Steps >= 0, "steps %d: must not be negative", c.Steps)
	errs = append(errs, c.validateEndpoints()...)
	errs = append(errs, c.validateEvaluation()...)
	check(slices.Contains(Estimators, c.Advantage.Estimator), "advantage.estimator %q: must be one of %v", c.Advantage.Estimator, Estimators)
	check(c.Sampling.Temperature >= 0 && c.Sampling.Temperature <= 10, "sampling.temperature %g: must be 0 to 10", c.Sampling.Temperature)
	check(c.Sampling.MaxTokens >= 1, "sampling.max_tokens %d: must be positive", c.Sampling.MaxTokens)
	check(c.Limits.Turns >= 1 && c.Limits.Turns <= 10000, "limits.turns %d: must be 1 to 10000", c.Limits.Turns)
	check(c.Limits.Tokens >= 1, "limits.tokens %d: must be positive", c.Limits.Tokens)
	check(c.Limits.Timeout > 0, "limits.timeout %s: must be positive", time.Duration(c.Limits.Timeout))
	check(c.Limits.Tries >= 1 && c.Limits.Tries <= deliveries, "limits.tries %d: must be 1 to %d", c.Limits.Tries, deliveries)
	check(c.Limits.HopelessGroups >= 0 && c.Limits.HopelessGroups <= 10000, "limits.hopeless_groups %d: must be 0 to 10000", c.Limits.HopelessGroups)
	check(c.Limits.BudgetTokens >= 0, "limits.budget_tokens %d: must not be negative", c.Limits.BudgetTokens)
	check(validPool(c.Pool), "pool %q: use letters, digits, - and _, at most %d, not %s, nor beginning with %s", c.Pool, maxPool, RouteFinal, runnerPrefix)
	check(c.MinIsolation == "" || slices.Contains(Isolations, c.MinIsolation), "min_isolation %q: must be one of %v", c.MinIsolation, Isolations)
	check(len(c.Tasks) > 0 || c.External, "tasks: the run has none")
	errs = append(errs, c.Scorer.validate()...)
	errs = append(errs, c.validateTraining()...)
	errs = append(errs, c.validateFeatures()...)
	errs = append(errs, c.validateTools()...)
	errs = append(errs, c.validateRepositories()...)
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
	check(c.Epochs > 0 || c.InFlight == 0, "in_flight %d: it is for evaluations; name their epochs", c.InFlight)
	check(c.InFlight >= 0 && c.InFlight <= 100000, "in_flight %d: must be 0 to 100000", c.InFlight)
	if v := c.PolicyVersion; v != nil {
		check(*v >= 0, "policy_version %d: must not be negative", *v)
	}
	if c.Epochs > 0 {
		check(c.Steps == 0, "epochs %d and steps %d: an evaluation ends when its tasks are tried; leave out one of them", c.Epochs, c.Steps)
		check(c.Curriculum == nil, "epochs %d: an evaluation tries all tasks equally often; leave out the curriculum", c.Epochs)
		check(!c.External, "epochs %d: an external run tries no tasks of its own", c.Epochs)
	}
	return errs
}

func (c *RunConfig) validateTasks() (errs []error) {
	seen := map[string]bool{}
	for i, t := range c.Tasks {
		check := func(ok bool, format string, args ...any) {
			if !ok {
				errs = append(errs, fmt.Errorf("tasks: %d (%.80q): "+format, append([]any{i, t.Name}, args...)...))
			}
		}
		check(t.Name != "", "name: it has none")
		check(!seen[t.Name], "name: it stands twice")
		check(path.IsAbs(t.Workdir), "workdir %q: must be an absolute path", t.Workdir)
		check(t.VerifierTimeout >= 0, "verifier_timeout %s: must not be negative", time.Duration(t.VerifierTimeout))
		check(t.AgentTimeout >= 0, "agent_timeout %s: must not be negative", time.Duration(t.AgentTimeout))
		check(t.MemoryMB >= 0, "memory_mb %d: must not be negative", t.MemoryMB)
		t.validateNeeds(check)
		t.validateSteps(check)
		err := CheckDeterministic(t.Deterministic)
		check(err == nil, "deterministic: %v", err)
		err = t.Snapshot.Validate()
		check(err == nil, "snapshot: %v", err)
		err = t.Tests.Validate()
		check(err == nil, "tests: %v", err)
		seen[t.Name] = true
	}
	if n := len(c.DifferentNeeds()); n > maxNeeds {
		errs = append(errs, fmt.Errorf("tasks: they have %d different needs (toolchains, memory, labels and so on), the limit is %d", n, maxNeeds))
	}
	return errs
}
