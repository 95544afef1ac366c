package runfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Needs are what a task wants of the tool runner that works on it.
type Needs struct {
	Toolchains []string `json:"toolchains,omitempty"`
	CPUs       int      `json:"cpus,omitempty"`
	MemoryMB   int      `json:"memory_mb,omitempty"`
	// DiskMB is set for workspaces that are too large for the memory.
	DiskMB int `json:"disk_mb,omitempty"`
	// Engine: the task's root file system is that of an image that a container engine has
	// built, and no registry has.
	Engine bool `json:"engine,omitempty"`
	// Labels are words that the runner's operator has given it: "gpu", "zone=eu".
	Labels []string `json:"labels,omitempty"`
}

// BuiltImages is how the names begin of images that `rondo tasks build` has an engine make.
const BuiltImages = "rondo-task:"

// IsBuilt reports whether an image is one of those.
func IsBuilt(image string) bool { return strings.HasPrefix(image, BuiltImages) }

// Needs are the task's.
func (t TaskSpec) Needs() Needs {
	return Needs{Toolchains: t.Toolchains, CPUs: t.CPUs, MemoryMB: t.MemoryMB, DiskMB: t.DiskMB,
		Engine: IsBuilt(t.Image), Labels: t.Labels}
}

// Key names equal needs by an equal route token of 8 letters; "" stands for none. It says
// nothing about their order.
func (n Needs) Key() string {
	n.Toolchains, n.Labels = slices.Sorted(slices.Values(n.Toolchains)), slices.Sorted(slices.Values(n.Labels))
	text, err := json.Marshal(n)
	if err != nil || string(text) == "{}" {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}

// String lists the needs for people: "toolchain go, 4 CPUs, label gpu".
func (n Needs) String() string {
	var list []string
	for _, name := range n.Toolchains {
		list = append(list, "toolchain "+name)
	}
	if n.CPUs > 0 {
		list = append(list, fmt.Sprintf("%d CPUs", n.CPUs))
	}
	if n.MemoryMB > 0 {
		list = append(list, fmt.Sprintf("%d MiB of memory", n.MemoryMB))
	}
	if n.DiskMB > 0 {
		list = append(list, fmt.Sprintf("a disk of %d MiB", n.DiskMB))
	}
	if n.Engine {
		list = append(list, "a container engine")
	}
	for _, label := range n.Labels {
		list = append(list, "label "+label)
	}
	return strings.Join(list, ", ")
}

// PoolRoute is the route of turns whose rollout has no sandbox yet: to any runner of the pool that
// has what the task needs.
func PoolRoute(pool string, needs Needs) string { return withKey(pool, needs.Key()) }

// RunnerRoute is the route to the one runner that holds a rollout's sandbox. The needs are part of
// it, so that when the runner is gone only those take over who have what it takes.
func RunnerRoute(runner string, needs Needs) string { return withKey(runnerPrefix+runner, needs.Key()) }

const runnerPrefix = "runner-"

// maxPool leaves room for the key in a token.
const maxPool = 55

func validPool(name string) bool {
	return ValidToken(name) && len(name) <= maxPool && !strings.HasPrefix(name, runnerPrefix) && name != RouteFinal &&
		name != RouteSummary && name != RouteEnvironment
}

func withKey(route, key string) string {
	if key == "" {
		return route
	}
	return route + "-" + key
}

// RunnerOf tells whose a route is: the runner, and the key of the needs.
// Neither has a hyphen in it.
func RunnerOf(route string) (runner, key string, ok bool) {
	rest, ok := strings.CutPrefix(route, runnerPrefix)
	runner, key, _ = strings.Cut(rest, "-")
	return runner, key, ok && runner != ""
}

// maxNeeds bounds the different needs of one run's tasks: each takes a consumer of
// every runner that meets them.
const maxNeeds = 32

// DifferentNeeds are those of a run's tasks, each once, in the order of the tasks.
func (c *RunConfig) DifferentNeeds() []Needs {
	var list []Needs
	seen := map[string]bool{}
	for _, t := range c.Tasks {
		if needs := t.Needs(); !seen[needs.Key()] {
			seen[needs.Key()] = true
			list = append(list, needs)
		}
	}
	return list
}

// validateNeeds checks what is in routes and what runners compare.
func (t TaskSpec) validateNeeds(check func(ok bool, format string, args ...any)) {
	check(t.CPUs >= 0 && t.CPUs <= 1024, "cpus %d: must be 0 to 1024", t.CPUs)
	check(len(t.Labels) <= maxLabels, "labels: %d, the limit is %d", len(t.Labels), maxLabels)
	for _, label := range t.Labels {
		check(ValidLabel(label), "label %.80q: %s", label, LabelRule)
	}
}

// Labels of tasks and runners.
const (
	maxLabels = 16
	LabelRule = "use letters, digits and any of _ . / = - , at most 64 of them"
)

// ValidLabel reports whether s can be a label of a runner.
func ValidLabel(s string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("_./=-", r))
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, odd)
}

// RouteFinal is the route of turns that ask for no tools: nobody consumes it.
const RouteFinal = "final"

// RouteSummary is the route of turns that sum a full context up: nobody consumes it, as the
// generator that sampled one goes on with the same input.
const RouteSummary = "final-summary"

// RouteEnvironment is the route of turns that the run's environment answers: no service consumes
// it, as the environment's worker follows the rollout.
const RouteEnvironment = "final-environment"
