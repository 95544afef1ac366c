package tasks

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/tasks/dockerfile"
)

// config is task.toml (schema 1.4, with the older spellings). What is said of no account is
// declared all the same: a key that is here nowhere is warned of.
type config struct {
	SchemaVersion           string `toml:"schema_version"`
	Version                 string `toml:"version"` // the old spelling of schema_version
	Source                  any    `toml:"source"`  // of no account
	MultiStepRewardStrategy string `toml:"multi_step_reward_strategy"`
	Task                    struct {
		Name        string   `toml:"name"`
		Version     any      `toml:"version"`     // of no account
		Description any      `toml:"description"` // of no account
		Authors     any      `toml:"authors"`     // of no account
		Keywords    []string `toml:"keywords"`
	} `toml:"task"`
	Metadata struct { // of no account but for these
		Difficulty string   `toml:"difficulty"`
		Tags       []string `toml:"tags"`
		Rondo      struct {
			Snapshot   string   `toml:"snapshot"`
			Toolchains []string `toml:"toolchains"`
			Modules    string   `toml:"modules"`
			Labels     []string `toml:"labels"`
			Image      bool     `toml:"image"`
			Protected  []string `toml:"protected"`
			Changes    []string `toml:"changes"`
			Verifier   string   `toml:"verifier"`
			Transcript bool     `toml:"transcript"`
			Repository bool     `toml:"repository"`
			// Lines whose answer follows from workspace and shell alone.
			Deterministic []string `toml:"deterministic"`
		} `toml:"rondo"`
	} `toml:"metadata"`
	Artifacts []any         `toml:"artifacts"`
	Agent     agentTable    `toml:"agent"`
	Verifier  verifierTable `toml:"verifier"`
	Solution  struct {
		Env map[string]string `toml:"env"`
	} `toml:"solution"`
	Environment struct {
		BuildTimeoutSec any               `toml:"build_timeout_sec"` // of no account: nothing is built
		DockerImage     string            `toml:"docker_image"`
		OS              string            `toml:"os"`
		Workdir         string            `toml:"workdir"`
		Env             map[string]string `toml:"env"`
		CPUs            int               `toml:"cpus"`
		MemoryMB        *int              `toml:"memory_mb"`
		Memory          string            `toml:"memory"` // the old spelling, "2G"
		StorageMB       int               `toml:"storage_mb"`
		Storage         string            `toml:"storage"` // the old spelling, "10G"
		GPUs            int               `toml:"gpus"`
		GPUTypes        []string          `toml:"gpu_types"`
		TPU             map[string]any    `toml:"tpu"`
		AllowInternet   bool              `toml:"allow_internet"`
		MCPServers      []any             `toml:"mcp_servers"`
		SkillsDir       string            `toml:"skills_dir"`
		Healthcheck     *healthcheck      `toml:"healthcheck"`
		network
	} `toml:"environment"`
	Stages []stageTable `toml:"steps"`

	unknown []string // keys that stand nowhere here
}

// agentTable is [agent], of the task or of a stage.
type agentTable struct {
	TimeoutSec *float64 `toml:"timeout_sec"`
	User       any      `toml:"user"`
	network
}

// verifierTable is [verifier], of the task or of a stage.
type verifierTable struct {
	TimeoutSec      *float64          `toml:"timeout_sec"`
	Env             map[string]string `toml:"env"`
	User            any               `toml:"user"`
	EnvironmentMode string            `toml:"environment_mode"`
	Environment     map[string]any    `toml:"environment"`
	Collect         []collect         `toml:"collect"`
	network
}

// separate: the verifier wants an environment of its own.
func (v *verifierTable) separate() bool {
	return v.EnvironmentMode == "separate" || len(v.Environment) > 0
}

const (
	maxConfig              = 256 << 10 // bytes of task.toml
	maxTimeout             = 24 * time.Hour
	defaultVerifierTimeout = 600 * time.Second // Harbor's
	defaultWorkdir         = "/app"
	maxMemoryMB            = 1 << 20
	maxCPUs                = 1024
	maxEnv                 = 256     // variables of one table
	maxEnvValue            = 8 << 10 // bytes
	maxKeywords            = 64
)

func readConfig(folder *node) (*config, error) {
	text, err := folder.readText("task.toml", maxConfig)
	if err != nil {
		return nil, err
	}
	cfg := &config{}
	err = toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(cfg)
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		for _, e := range unknown.Errors {
			key := strings.Join(e.Key(), ".")
			if strings.HasPrefix(key, "metadata.rondo.") { // nobody else reads this table
				return nil, fmt.Errorf("task.toml: %.100q: [metadata.rondo] has no such key", key)
			}
			cfg.unknown = append(cfg.unknown, key)
		}
		err = nil
	}
	if err != nil {
		return nil, tomlError(err)
	}
	return cfg, nil
}

// goTypes turns the library's words about Go into words about TOML.
var goTypes = regexp.MustCompile(`into (?:struct field .* of type )?([\[\]*a-z0-9]+)`)

func tomlError(err error) error {
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return fmt.Errorf("task.toml: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	row, _ := decode.Position()
	where := fmt.Sprintf("task.toml:%d", row)
	if key := strings.Join(decode.Key(), "."); key != "" {
		where += ": " + key
	}
	message := strings.TrimPrefix(decode.Error(), "toml: ")
	if found := goTypes.FindStringSubmatchIndex(message); found != nil {
		message = message[:found[0]] + "as " + tomlType(message[found[2]:found[3]])
	}
	return fmt.Errorf("%s: %s", where, message)
}

func tomlType(goType string) string {
	switch strings.TrimPrefix(goType, "*") {
	case "string":
		return "a string"
	case "float64":
		return "a number"
	case "int":
		return "an integer"
	case "bool":
		return "a boolean"
	case "struct", "map", "tasks": // types of this package are tables
		return "a table"
	}
	return "an array"
}

// apply checks the settings and copies them into the task.
func (c *config) apply(task *Task) error {
	task.Difficulty = c.Metadata.Difficulty
	task.Keywords = c.Task.Keywords
	if len(task.Keywords) == 0 {
		task.Keywords = c.Metadata.Tags
	}
	if len(task.Keywords) > maxKeywords {
		return fmt.Errorf("task.keywords: %d, the limit is %d", len(task.Keywords), maxKeywords)
	}
	for _, check := range []func(*Task) error{
		c.refuse, c.setTimeouts, c.setCollect, c.setHealthcheck, c.setEnv, c.setMemory, c.setStorage, c.setToolchains,
		c.setNeeds, c.setNetwork, c.setProtected, c.setVerifier, c.setDeterministic,
	} {
		if err := check(task); err != nil {
			return err
		}
	}
	c.warn(task)
	return nil
}

func (c *config) setTimeouts(task *Task) (err error) {
	if task.AgentTimeout, err = timeout("agent.timeout_sec", c.Agent.TimeoutSec, 0); err != nil {
		return err
	}
	task.VerifierTimeout, err = timeout("verifier.timeout_sec", c.Verifier.TimeoutSec, defaultVerifierTimeout)
	return err
}

func timeout(key string, seconds *float64, unset time.Duration) (time.Duration, error) {
	if seconds == nil {
		return unset, nil
	}
	if !(*seconds > 0) || *seconds > maxTimeout.Seconds() {
		return 0, fmt.Errorf("%s: %g: want seconds above 0 and up to %g", key, *seconds, maxTimeout.Seconds())
	}
	return time.Duration(math.Ceil(*seconds * float64(time.Second))), nil
}

func (c *config) setEnv(task *Task) (err error) {
	if task.Env, err = environment("environment.env", c.Environment.Env); err != nil {
		return err
	}
	if task.VerifierEnv, err = c.Verifier.environment("verifier"); err != nil {
		return err
	}
	task.SolutionEnv, err = environment("solution.env", c.Solution.Env)
	return err
}

// environment are the verifier's variables: those of its environment, and over them its own.
func (v *verifierTable) environment(table string) (map[string]string, error) {
	given := map[string]string{}
	inner, _ := v.Environment["env"].(map[string]any)
	for name, value := range inner {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%s.environment.env.%.100s: want a string", table, name)
		}
		given[name] = text
	}
	maps.Copy(given, v.Env)
	return environment(table+".env", given)
}

var hostVariable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)

// environment checks the variables of one table. A "${NAME:-default}", which
// Harbor takes from the host, becomes its default: tasks see nothing of the
// host's environment.
func environment(key string, values map[string]string) (map[string]string, error) {
	if len(values) > maxEnv {
		return nil, fmt.Errorf("%s: %d variables, the limit is %d", key, len(values), maxEnv)
	}
	result := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if !dockerfile.ValidVariable.MatchString(name) {
			return nil, fmt.Errorf("%s: %q is not the name of a variable", key, name)
		}
		if len(value) > maxEnvValue || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("%s.%s: too long (limit %d bytes) or holds a zero byte", key, name, maxEnvValue)
		}
		for _, found := range hostVariable.FindAllStringSubmatch(value, -1) {
			if !strings.Contains(found[0], ":-") {
				return nil,
					fmt.Errorf("%s.%s: wants %s of the host, which tasks do not see: give a value or ${%s:-default}",
						key, name, found[0], found[1])
			}
		}
		result[name] = hostVariable.ReplaceAllString(value, "$2")
	}
	return result, nil
}

func (c *config) setMemory(task *Task) error {
	switch {
	case c.Environment.MemoryMB != nil:
		task.MemoryMB = *c.Environment.MemoryMB
		if task.MemoryMB < 1 || task.MemoryMB > maxMemoryMB {
			return fmt.Errorf("environment.memory_mb: %d: want 1 to %d", task.MemoryMB, maxMemoryMB)
		}
	case c.Environment.Memory != "":
		size, err := sizeMB(c.Environment.Memory)
		if err != nil {
			return fmt.Errorf("environment.memory: %w", err)
		}
		task.MemoryMB = size
	}
	return nil
}

// sizeMB reads the old spelling: "512M", "2G", "2Gi".
func sizeMB(text string) (int, error) {
	digits := strings.TrimRight(text, "GgMmiB")
	size, err := strconv.Atoi(digits)
	if err != nil || size < 1 || size > maxMemoryMB {
		return 0, fmt.Errorf("%q: want a size such as 512M or 2G", text)
	}
	switch strings.ToLower(text[len(digits):]) {
	case "m", "mb", "mi", "mib":
		return size, nil
	case "g", "gb", "gi", "gib":
		if size > maxMemoryMB/1024 {
			return 0, fmt.Errorf("%q: more than %d MiB", text, maxMemoryMB)
		}
		return size * 1024, nil
	}
	return 0, fmt.Errorf("%q: want a size such as 512M or 2G", text)
}

var validToolchain = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

func (c *config) setToolchains(task *Task) error {
	for _, name := range c.Metadata.Rondo.Toolchains {
		if !validToolchain.MatchString(name) {
			return fmt.Errorf("metadata.rondo.toolchains: %q: want a plain name such as \"go\"", name)
		}
	}
	task.Toolchains = slices.Compact(slices.Sorted(slices.Values(c.Metadata.Rondo.Toolchains)))
	return nil
}

// setNeeds takes over what a tool runner must have besides toolchains and memory.
func (c *config) setNeeds(task *Task) error {
	if task.CPUs = c.Environment.CPUs; task.CPUs < 0 || task.CPUs > maxCPUs {
		return fmt.Errorf("environment.cpus: %d: want 0 to %d", task.CPUs, maxCPUs)
	}
	task.Labels = slices.Compact(slices.Sorted(slices.Values(c.Metadata.Rondo.Labels)))
	for _, label := range task.Labels {
		if !runfile.ValidLabel(label) {
			return fmt.Errorf("metadata.rondo.labels: %q: %s", label, runfile.LabelRule)
		}
	}
	return nil
}

func (c *config) setProtected(task *Task) error {
	rondo := c.Metadata.Rondo
	for key, patterns := range map[string][]string{"protected": rondo.Protected, "changes": rondo.Changes} {
		for _, pattern := range patterns {
			if strings.HasPrefix(pattern, "+") || key == "changes" && strings.HasPrefix(pattern, "!") {
				return fmt.Errorf("metadata.rondo.%s: %.100q: changes holds paths that are the agent's to change, and protected those that are not, or with ! are after all", key, pattern)
			}
		}
		if err := verifier.CheckPatterns(patterns); err != nil {
			return fmt.Errorf("metadata.rondo.%s: %w", key, err)
		}
	}
	task.Protected = rondo.Protected
	for _, pattern := range rondo.Changes {
		task.Protected = append(task.Protected, "+"+pattern)
	}
	return nil
}

func (c *config) setVerifier(task *Task) error {
	level := c.Metadata.Rondo.Verifier
	if level != "" && !slices.Contains(runfile.Verifiers, level) {
		return fmt.Errorf("metadata.rondo.verifier: %.80q: must be one of %v", level, runfile.Verifiers)
	}
	task.Separate, task.Transcript = level == runfile.VerifierSeparate, c.Metadata.Rondo.Transcript
	if task.Transcript && len(c.Stages) > 0 {
		return errors.New("metadata.rondo.transcript: stages are scored while the rollout goes on, when there is no transcript yet")
	}
	return nil
}

func (c *config) setDeterministic(task *Task) error {
	task.Deterministic = c.Metadata.Rondo.Deterministic
	if err := runfile.CheckDeterministic(task.Deterministic); err != nil {
		return fmt.Errorf("metadata.rondo.deterministic: %w", err)
	}
	return nil
}

// systemFolders cannot be a workspace, nor hold one: they are the system's,
// read-only, or the verifier's.
var systemFolders = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/logs", "/proc",
	"/run", "/sbin", "/solution", "/sys", "/tests", "/tmp", "/transcript", "/usr",
}

func checkWorkdir(dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || len(dir) > maxName || strings.ContainsFunc(dir, isOdd) {
		return fmt.Errorf("workdir %q: want a clean absolute path of plain characters such as /app", dir)
	}
	top := "/" + strings.SplitN(dir, "/", 3)[1]
	if dir == "/" || dir == "/var" || slices.Contains(systemFolders, top) {
		return fmt.Errorf("workdir %q: belongs to the system or to the verifier: use /app", dir)
	}
	return nil
}

// isOdd finds characters that mount options and shells would misread.
func isOdd(r rune) bool {
	return !(r == '/' || r == '.' || r == '_' || r == '-' || r == '+' ||
		r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
}
