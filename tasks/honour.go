package tasks

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// Unsupported is a setting of a task that Rondo cannot honour, as it runs no container engine, and
// that would change what the task measures.
type Unsupported struct {
	Field string // as it stands in task.toml, "environment.gpus", or a file of the task
	Why   string // and what to do
}

func (u *Unsupported) Error() string { return u.Field + ": " + u.Why }

func unsupported(field, format string, args ...any) error {
	return &Unsupported{Field: field, Why: fmt.Sprintf(format, args...)}
}

// network is what a phase may reach. Only the agent's sandbox can have a way out, and only
// where the run allows one.
type network struct {
	NetworkMode  string   `toml:"network_mode"`
	AllowedHosts []string `toml:"allowed_hosts"`
}

// Modes of a network.
const (
	noNetwork     = "no-network"
	someHosts     = "allowlist"
	publicNetwork = "public"
)

// check reports what no run could give an agent.
func (n network) check(table string) error {
	if !slices.Contains([]string{"", publicNetwork, noNetwork, someHosts}, n.NetworkMode) {
		return fmt.Errorf("%s.network_mode: %q: want public, no-network or allowlist", table, n.NetworkMode)
	}
	if n.NetworkMode != someHosts && len(n.AllowedHosts) > 0 {
		return fmt.Errorf("%s.allowed_hosts: they go with network_mode = %q", table, someHosts)
	}
	for _, host := range n.AllowedHosts {
		if err := netaccess.CheckAllowed(host); err != nil {
			return unsupported(table+".allowed_hosts", "%v", err)
		}
	}
	return nil
}

// refuse is check for a phase that has no sandbox of its own with a way out.
func (n network) refuse(table string) error {
	const why = "it can reach no host: only the agent's sandbox can, for the whole task; put what they serve into the snapshot"
	switch {
	case n.NetworkMode == someHosts:
		return unsupported(table+".network_mode", why)
	case len(n.AllowedHosts) > 0:
		return unsupported(table+".allowed_hosts", why)
	}
	return n.check(table)
}

// setNetwork takes over the most that the task wants of its run's network. The agent's table goes
// before the environment's, and a stage that wants none means the whole task: it has one sandbox.
func (c *config) setNetwork(task *Task) error {
	for _, n := range []network{c.Agent.network, c.Environment.network} {
		if n.NetworkMode == noNetwork || n.NetworkMode == someHosts {
			task.Network = &netaccess.Network{Allow: n.AllowedHosts}
		}
		if n.NetworkMode != "" {
			break
		}
	}
	if slices.ContainsFunc(c.Stages, func(s stageTable) bool { return s.Agent.NetworkMode == noNetwork }) {
		task.Network = &netaccess.Network{}
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
	case env.GPUs > 0:
		return unsupported("environment.gpus", "a sandbox has no GPU: set it to 0")
	case len(env.GPUTypes) > 0:
		return unsupported("environment.gpu_types", "a sandbox has no GPU: leave it out")
	case len(env.TPU) > 0:
		return unsupported("environment.tpu", "a sandbox has no TPU")
	case len(env.MCPServers) > 0:
		return unsupported("environment.mcp_servers",
			"not supported: a sandbox can reach no server of a task; a run can name tools.servers")
	}
	if err := errors.Join(env.network.check("environment"), refuseUser("agent.user", c.Agent.User),
		c.Agent.network.check("agent")); err != nil {
		return err
	}
	return c.Verifier.refuse("verifier", env.Workdir)
}

// refuse checks what the agent's table of a stage asks of its sandbox.
func (a *agentTable) refuse(table string) error {
	if err := refuseUser(table+".user", a.User); err != nil {
		return err
	}
	return a.network.refuse(table)
}

// refuseUser refuses any user but root, who inside has no more rights than others: all that runs
// in a sandbox is one user.
func refuseUser(field string, user any) error {
	if user == nil || slices.Contains([]string{"", "root", "0"}, fmt.Sprint(user)) {
		return nil
	}
	return unsupported(field, "%.40q: a sandbox has one user, root without rights over the host: leave it out",
		fmt.Sprint(user))
}

// honoured are the keys of [verifier.environment] that a fresh sandbox of the same kind fulfils, or
// to which it is indifferent.
var honoured = []string{"env", "network_mode", "workdir", "os", "cpus", "memory_mb", "storage_mb", "build_timeout_sec"}

// refuse checks the verifier's environment: it is a fresh sandbox in both modes.
func (v *verifierTable) refuse(table, workdir string) error {
	if err := refuseUser(table+".user", v.User); err != nil {
		return err
	}
	if err := v.network.refuse(table); err != nil {
		return err
	}
	mode := v.EnvironmentMode
	switch {
	case !slices.Contains([]string{"", "shared", "separate"}, mode):
		return fmt.Errorf("%s.environment_mode: %q: want shared or separate", table, mode)
	case mode == "shared" && len(v.Environment) > 0:
		return fmt.Errorf("%s.environment: a shared verifier has no environment of its own: leave it out, or set environment_mode to separate", table)
	}
	for _, key := range slices.Sorted(maps.Keys(v.Environment)) {
		value := v.Environment[key]
		switch {
		case !slices.Contains(honoured, key), key == "network_mode" && value == "allowlist",
			key == "os" && value != "linux",
			key == "workdir" && value != workdir:
			return unsupported(table+".environment."+key,
				"the verifier runs in a fresh sandbox of the same kind as the agent's")
		}
	}
	return nil
}

// warn says what of the verifier's environment is not honoured.
func (v *verifierTable) warn(table string, task *Task) {
	for _, key := range []string{"cpus", "memory_mb", "storage_mb"} {
		if _, set := v.Environment[key]; set {
			task.warn(table + ".environment." + key + ": the verifier's sandbox has as much as the agent's")
		}
	}
	if v.Environment["network_mode"] == "public" {
		task.warn(table + ".environment.network_mode: asks for a network: a sandbox has none")
	}
}

// warn says what is not honoured and does not change what is measured.
func (c *config) warn(task *Task) {
	for _, asks := range []struct {
		field string
		asks  bool
	}{
		{"environment.allow_internet", c.Environment.AllowInternet},
		{"environment.network_mode", c.Environment.NetworkMode == "public"},
		{"agent.network_mode", c.Agent.NetworkMode == "public"},
	} {
		if asks.asks {
			task.warn(asks.field +
				": asks for a network: a sandbox has the one that its run allows (network.allow), by default none")
		}
	}
	if c.Verifier.NetworkMode == publicNetwork {
		task.warn("verifier.network_mode: asks for a network: a verifier has none")
	}
	if c.Environment.SkillsDir != "" {
		task.warn("environment.skills_dir: is not shown to the agent")
	}
	c.Verifier.warn("verifier", task)
	for _, key := range c.unknown {
		if !strings.HasPrefix(key, "metadata.") {
			task.warn(fmt.Sprintf("%.100q: is no key that is known here: it is ignored", key))
		}
	}
}

// setStorage reads how much a task wants to write. Its run decides how much it may.
func (c *config) setStorage(task *Task) error {
	size, key := c.Environment.StorageMB, "environment.storage_mb"
	if c.Environment.Storage != "" && size == 0 {
		var err error
		key = "environment.storage"
		if size, err = sizeMB(c.Environment.Storage); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if size < 0 {
		return fmt.Errorf("%s: %d: must not be negative", key, size)
	}
	if size > maxMemoryMB {
		return fmt.Errorf("%s: %d: more than %d MiB", key, size, maxMemoryMB)
	}
	task.DiskMB = size
	if size > runfile.DefaultDiskMB {
		task.warn(fmt.Sprintf("%s: %d MiB: its sandboxes may write %d MiB, or what its run's limits.disk allows", key,
			size, runfile.DefaultDiskMB))
	}
	return nil
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

func (c *config) setCollect(task *Task) (err error) {
	task.Collect, err = c.Verifier.hooks("verifier.collect")
	return err
}

// hooks are the commands of a table's key.
func (v *verifierTable) hooks(key string) (hooks []verifier.Hook, err error) {
	if len(v.Collect) > maxHooks {
		return nil, fmt.Errorf("%s: %d hooks, the limit is %d", key, len(v.Collect), maxHooks)
	}
	for _, hook := range v.Collect {
		if hook.Service != "" && hook.Service != "main" {
			return nil, unsupported(key+".service", "%.40q: there are no services beside the agent's sandbox",
				hook.Service)
		}
		if err := refuseUser(key+".user", hook.User); err != nil {
			return nil, err
		}
		if strings.TrimSpace(hook.Command) == "" || len(hook.Command) > maxCommand {
			return nil, fmt.Errorf("%s.command: want 1 to %d bytes", key, maxCommand)
		}
		limit, err := timeout(key+".timeout_sec", hook.TimeoutSec, defaultCollectTimeout)
		if err != nil {
			return nil, err
		}
		hooks = append(hooks, verifier.Hook{Command: hook.Command, Timeout: limit})
	}
	return hooks, nil
}

// healthcheck says when an environment is ready. Sandboxes start nothing by themselves, so it holds
// from the beginning or never: lint looks which.
type healthcheck struct {
	Command    string   `toml:"command"`
	TimeoutSec *float64 `toml:"timeout_sec"`
	// Of no account, as nothing changes by waiting.
	IntervalSec      any `toml:"interval_sec"`
	StartPeriodSec   any `toml:"start_period_sec"`
	StartIntervalSec any `toml:"start_interval_sec"`
	Retries          any `toml:"retries"`
}

const defaultHealthTimeout = 30 * time.Second

func (c *config) setHealthcheck(task *Task) (err error) {
	task.Healthcheck, err = c.Environment.Healthcheck.hook("environment.healthcheck")
	return err
}

// hook is the command of a key's table; nil for none.
func (check *healthcheck) hook(key string) (*verifier.Hook, error) {
	if check == nil {
		return nil, nil
	}
	if strings.TrimSpace(check.Command) == "" || len(check.Command) > maxCommand {
		return nil, fmt.Errorf("%s.command: want 1 to %d bytes", key, maxCommand)
	}
	limit, err := timeout(key+".timeout_sec", check.TimeoutSec, defaultHealthTimeout)
	return &verifier.Hook{Command: check.Command, Timeout: limit}, err
}

// checkArtifacts refuses artifacts that do not lie in the workspace, of which
// all reaches the verifier.
func checkArtifacts(key string, artifacts []any, workdir string, warn func(string)) error {
	for _, artifact := range artifacts {
		source, destination := "", ""
		switch a := artifact.(type) {
		case string:
			source = a
		case map[string]any:
			source, _ = a["source"].(string)
			destination, _ = a["destination"].(string)
			if service, _ := a["service"].(string); service != "" && service != "main" {
				return unsupported(key+".service", "%.40q: there are no services beside the agent's sandbox", service)
			}
			if a["exclude"] != nil {
				warn(key + ".exclude: all of the workspace reaches the verifier")
			}
		}
		if source == "" {
			return fmt.Errorf("%s: %.100q: want a path, or a table with its source", key, fmt.Sprint(artifact))
		}
		if !path.IsAbs(source) {
			source = path.Join(workdir, source)
		}
		if _, inside := relativeTo(workdir, path.Clean(source)); !inside {
			return unsupported(key,
				"%.100q lies outside of the workspace %s, which is all that is kept of the agent's sandbox", source,
				workdir)
		}
		if destination != "" && path.Clean(destination) != path.Clean(source) {
			return unsupported(key+".destination", "%.100q: artifacts stay where the agent put them", destination)
		}
	}
	return nil
}
