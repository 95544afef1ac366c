package runfile

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Environment is what answers the turns of a run's rollouts in place of tool runners:
// a worker of a user's own.
type Environment struct {
	// Name is the one that workers serve.
	Name string `json:"name" yaml:"name"`
	// Tools are those that the model may call; without any it answers in text alone.
	Tools []toolset.ServerTool `json:"tools,omitempty" yaml:"tools"`
	// Roles are those of an episode that has several: each is a rollout of its own in the
	// episode's group, and the environment says which of them has the word. Empty for
	// episodes of one rollout.
	Roles []string `json:"roles,omitempty" yaml:"roles"`
}

// Bounds of a task's data, in bytes, and of what the tools of an environment are described in.
const (
	maxTaskData         = 256 << 10
	maxEnvironmentTools = 64
	maxRoles            = 16
)

// HasWorkspace reports whether the task's agent has files to work on.
func (t TaskSpec) HasWorkspace() bool { return t.Snapshot.Key != "" }

// workspaceless reports whether the run's tasks need no workspace: something other than tests
// rates what comes of them.
func (c *RunConfig) workspaceless() bool { return c.Environment != nil || c.Scorer.Function != "" }

// validateRoles checks the roles of episodes, and what follows from them.
func (c *RunConfig) validateRoles(check func(ok bool, format string, args ...any)) {
	var roles []string
	if c.Environment != nil {
		roles = c.Environment.Roles
	}
	check(len(roles) > 0 || !c.Filters.WholeEpisodes, "filters.whole_episodes: the run has no environment.roles")
	for _, f := range c.Feeds {
		check(len(roles) > 0 || f.Filters == nil || !f.Filters.WholeEpisodes,
			"feeds: %s: filters.whole_episodes: the run has no environment.roles", f.Name)
	}
	if len(roles) == 0 {
		return
	}
	check(len(roles) >= 2 && len(roles) <= maxRoles, "environment.roles: %d of them, must be 2 to %d", len(roles),
		maxRoles)
	check(c.GroupSize%len(roles) == 0,
		"group_size %d: must be a multiple of %d: each episode has a rollout for each of environment.roles",
		c.GroupSize, len(roles))
	for i, r := range roles {
		check(ValidToken(r) && !slices.Contains(roles[:i], r),
			"environment.roles: %.80q: use a name that no other role has, of letters, digits, - and _, at most 64", r)
	}
}

func (c *RunConfig) validateEnvironment() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, t := range c.Tasks {
		data, err := json.Marshal(t.Data)
		check(err == nil && len(data) <= maxTaskData, "tasks: %.80q: data: %d bytes, at most %d", t.Name, len(data),
			maxTaskData)
		check(t.HasWorkspace() || !c.Scorer.Hygiene() && c.Scorer.Judge == nil,
			"tasks: %.80q: it has no workspace, whose change the run's scorer looks at", t.Name)
		check(c.Environment == nil || len(t.Steps) == 0,
			"tasks: %.80q: it has steps, which no environment answers", t.Name)
	}
	c.validateRoles(check)
	if c.Environment == nil {
		return errs
	}
	check(ValidToken(c.Environment.Name), "environment.name %.80q: use letters, digits, - and _, at most 64",
		c.Environment.Name)
	check(!c.External, "environment: the rollouts of an external run are made elsewhere")
	check(c.Limits.ContextFull != ContextSummarise,
		"limits.context_full %s: no environment knows what is left of a conversation behind a summary",
		c.Limits.ContextFull)
	check(len(c.Environment.Tools) <= maxEnvironmentTools,
		"environment.tools: %d of them, at most %d", len(c.Environment.Tools), maxEnvironmentTools)
	served, names := 0, map[string]bool{}
	for _, t := range c.Environment.Tools {
		text, _ := json.Marshal(t)
		served += len(text)
		check(!names[t.Name] && toolName.MatchString(t.Name),
			"environment.tools: %.80q: use a name that no other tool has, of letters, digits, - and _, at most 64",
			t.Name)
		check(len(t.Description) <= maxToolText, "environment.tools: %.80q: description of %d bytes, at most %d",
			t.Name, len(t.Description), maxToolText)
		err := checkArguments(t.Arguments())
		check(err == nil, "environment.tools: %.80q: %v", t.Name, err)
		names[t.Name] = true
	}
	check(served <= maxServed, "environment.tools: described in %d bytes, at most %d: each prompt has them", served,
		maxServed)
	return errs
}
