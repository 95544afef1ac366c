package tasks

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// Unsupported is a setting of a task that Rondo cannot honour, as it runs no container engine, and that would change what the task
// measures.
type Unsupported struct {
	Field string // as it stands in task.toml, "environment.gpus", or a file of the task
	Why   string // and what to do
}

func (u *Unsupported) Error() string { return u.Field + ": " + u.Why }

func unsupported(field, format string, args ...any) error {
	return &Unsupported{Field: field, Why: fmt.Sprintf(format, args...)}
}

// network is what a phase may reach. A sandbox has a loopback device of its own and nothing else.
type network struct {
	NetworkMode  string   `toml:"network_mode"`
	AllowedHosts []string `toml:"allowed_hosts"`
}

func (n network) refuse(table string) error {
	switch n.NetworkMode {
	case "", "public", "no-network":
	case "allowlist":
		return unsupported(table+".network_mode", "a sandbox has no network, so it can allow no host: put what they serve into the snapshot")
	default:
		return fmt.Errorf("%s.network_mode: %q: want public, no-network or allowlist", table, n.NetworkMode)
	}
	if len(n.AllowedHosts) > 0 {
		return unsupported(table+".allowed_hosts", "a sandbox has no network, so it can allow no host: put what they serve into the snapshot")
	}
	return nil
}

// refuse names the settings that cannot be honoured.
func (c *config) refuse(*Task) error {
	version := c.SchemaVersion
	if version == "" {
		version = c.Version
	}
	env := c.Environment
	switch {
	case version != "" && version != "1" && !strings.HasPrefix(version, "1."):
		return unsupported("schema_version", "%q is unknown, this Rondo reads 1.x", version)
	case env.OS != "" && env.OS != "linux":
		return unsupported("environment.os", "%q is not supported, only linux is", env.OS)
	case env.GPUs > 0 || len(env.GPUTypes) > 0:
		return unsupported("environment.gpus", "a sandbox has no GPU: set it to 0")
	case len(env.TPU) > 0:
		return unsupported("environment.tpu", "a sandbox has no TPU")
	case len(env.MCPServers) > 0:
		return unsupported("environment.mcp_servers", "not supported: a sandbox has no network")
	}
	for _, u := range []struct {
		field string
		user  any
	}{{"agent.user", c.Agent.User}, {"verifier.user", c.Verifier.User}} {
		if err := refuseUser(u.field, u.user); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		table string
		network
	}{{"environment", env.network}, {"agent", c.Agent.network}, {"verifier", c.Verifier.network}} {
		if err := n.refuse(n.table); err != nil {
			return err
		}
	}
	return c.refuseVerifier()
}

// refuseUser refuses any user but root, who inside has no more rights than others: all that runs in a sandbox is one user.
func refuseUser(field string, user any) error {
	if user == nil || slices.Contains([]string{"", "root", "0"}, fmt.Sprint(user)) {
		return nil
	}
	return unsupported(field, "%.40q: a sandbox has one user, root without rights over the host: leave it out", fmt.Sprint(user))
}

// honoured are the keys of [verifier.environment] that a fresh sandbox of the same kind fulfils, or to which it is indifferent.
var honoured = []string{"env", "network_mode", "workdir", "os", "cpus", "memory_mb", "storage_mb", "build_timeout_sec"}

// refuseVerifier checks the verifier's environment: it is a fresh sandbox in both modes.
func (c *config) refuseVerifier() error {
	mode := c.Verifier.EnvironmentMode
	switch {
	case !slices.Contains([]string{"", "shared", "separate"}, mode):
		return fmt.Errorf("verifier.environment_mode: %q: want shared or separate", mode)
	case mode == "shared" && len(c.Verifier.Environment) > 0:
		return fmt.Errorf("verifier.environment: a shared verifier has none of its own: leave it out, or set environment_mode to separate")
	}
	for _, key := range slices.Sorted(maps.Keys(c.Verifier.Environment)) {
		value := c.Verifier.Environment[key]
		switch {
		case !slices.Contains(honoured, key), key == "network_mode" && value == "allowlist", key == "os" && value != "linux",
			key == "workdir" && value != c.Environment.Workdir:
			return unsupported("verifier.environment."+key, "the verifier runs in a fresh sandbox of the same kind as the agent's")
		}
	}
	return nil
}

// warn says what is not honoured and does not change what is measured.
func (c *config) warn(task *Task) {
	add := func(text string) { task.Warnings = append(task.Warnings, "task.toml: "+text) }
	for _, mode := range []string{c.Environment.NetworkMode, c.Agent.NetworkMode, c.Verifier.NetworkMode} {
		if mode == "public" || c.Environment.AllowInternet {
			add("environment: asks for a network: a sandbox has none")
			break
		}
	}
	if c.Environment.SkillsDir != "" {
		add("environment.skills_dir: is not shown to the agent")
	}
}

// collect is a hook that runs in the agent's workspace after the agent.
type collect struct {
	Command    string   `toml:"command"`
	Service    string   `toml:"service"`
	TimeoutSec *float64 `toml:"timeout_sec"`
	User       any      `toml:"user"`
}

const (
	maxHooks              = 20
	maxCommand            = 16 << 10 // bytes
	defaultCollectTimeout = 60 * time.Second
)

func (c *config) setCollect(task *Task) error {
	if len(c.Verifier.Collect) > maxHooks {
		return fmt.Errorf("verifier.collect: %d hooks, the limit is %d", len(c.Verifier.Collect), maxHooks)
	}
	for _, hook := range c.Verifier.Collect {
		if hook.Service != "" && hook.Service != "main" {
			return unsupported("verifier.collect.service", "%.40q: there are no services beside the agent's sandbox", hook.Service)
		}
		if err := refuseUser("verifier.collect.user", hook.User); err != nil {
			return err
		}
		if strings.TrimSpace(hook.Command) == "" || len(hook.Command) > maxCommand {
			return fmt.Errorf("verifier.collect.command: want 1 to %d bytes", maxCommand)
		}
		limit, err := timeout("verifier.collect.timeout_sec", hook.TimeoutSec, defaultCollectTimeout)
		if err != nil {
			return err
		}
		task.Collect = append(task.Collect, verifier.Hook{Command: hook.Command, Timeout: limit})
	}
	return nil
}

// healthcheck says when an environment is ready. Sandboxes start nothing by themselves, so it holds from the beginning or never: lint
// looks which.
type healthcheck struct {
	Command    string   `toml:"command"`
	TimeoutSec *float64 `toml:"timeout_sec"`
}

const defaultHealthTimeout = 30 * time.Second

func (c *config) setHealthcheck(task *Task) error {
	check := c.Environment.Healthcheck
	if check == nil {
		return nil
	}
	if strings.TrimSpace(check.Command) == "" || len(check.Command) > maxCommand {
		return fmt.Errorf("environment.healthcheck.command: want 1 to %d bytes", maxCommand)
	}
	limit, err := timeout("environment.healthcheck.timeout_sec", check.TimeoutSec, defaultHealthTimeout)
	task.Healthcheck = &verifier.Hook{Command: check.Command, Timeout: limit}
	return err
}

// checkArtifacts refuses artifacts that do not lie in the workspace, of which all reaches the verifier.
func (c *config) checkArtifacts(workdir string) error {
	for _, artifact := range c.Artifacts {
		source, destination := "", ""
		switch a := artifact.(type) {
		case string:
			source = a
		case map[string]any:
			source, _ = a["source"].(string)
			destination, _ = a["destination"].(string)
			if service, _ := a["service"].(string); service != "" && service != "main" {
				return unsupported("artifacts.service", "%.40q: there are no services beside the agent's sandbox", service)
			}
		}
		if source == "" {
			return fmt.Errorf("artifacts: %.100q: want a path, or a table with its source", fmt.Sprint(artifact))
		}
		if !path.IsAbs(source) {
			source = path.Join(workdir, source)
		}
		if _, inside := below(workdir, path.Clean(source)); !inside {
			return unsupported("artifacts", "%.100q lies outside of the workspace %s, which is all that is kept of the agent's sandbox", source, workdir)
		}
		if destination != "" && path.Clean(destination) != path.Clean(source) {
			return unsupported("artifacts.destination", "%.100q: artifacts stay where the agent put them", destination)
		}
	}
	return nil
}
