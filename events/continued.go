package events

import (
	"fmt"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Continued says which run a run continues, and holds what it takes along, so that whoever reads
// the new run alone decides as it did.
type Continued struct {
	Run string `json:"run" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	// Until is the last event of that run that counted.
	Until uint64 `json:"until" jsonschema:"minimum=1"`
	// PolicyVersion is the one that the new run begins at; 0 where its policy is another one.
	PolicyVersion int64 `json:"policy_version,omitempty" jsonschema:"minimum=0"`
	// Groups and Drawn are how many groups were opened, and tasks drawn, in all runs before: seeds
	// and epochs go on behind them.
	Groups int64 `json:"groups,omitempty" jsonschema:"minimum=0"`
	Drawn  int64 `json:"drawn,omitempty" jsonschema:"minimum=0"`
	// MeanTokens is the moving average of a group's tokens, and Measured how many groups are in it.
	MeanTokens float64 `json:"mean_tokens,omitempty" jsonschema:"minimum=0"`
	Measured   int64   `json:"measured,omitempty" jsonschema:"minimum=0"`
	// Steps are the last steps of that run's feeds. The new run's steps begin at 1.
	Steps map[string]int64 `json:"steps,omitempty"`
	// Tasks are those of the new run of which something is known.
	Tasks map[string]TaskLearnt `json:"tasks,omitempty"`
}

// TaskLearnt is what a run has learnt about one of its tasks.
type TaskLearnt struct {
	// PassRate is the moving average by which a curriculum draws.
	PassRate *float64 `json:"pass_rate,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Baseline is what its groups are compared with, of an estimator that remembers one.
	Baseline *float64 `json:"baseline,omitempty"`
	// Baselines are those of each role, where the task's episodes have several.
	Baselines map[string]float64 `json:"baselines,omitempty"`
	// Misfit: its first prompt did not fit into the server's context, so it is not drawn.
	Misfit bool `json:"misfit,omitempty"`
}

// Nothing reports whether nothing is known.
func (t TaskLearnt) Nothing() bool {
	return t.PassRate == nil && t.Baseline == nil && len(t.Baselines) == 0 && !t.Misfit
}

// maxBefore bounds the counts of what happened before a run, so that sums with
// its own do not overflow.
const maxBefore = 1 << 40

// Validate checks what a run with a configuration says that it takes along,
// beyond what its schema does.
func (c *Continued) Validate(run string, cfg runfile.RunConfig) error {
	switch {
	case !ValidRun(c.Run) || c.Run == run:
		return fmt.Errorf("continues %.70q: name another run", c.Run)
	case cfg.Epochs > 0:
		return fmt.Errorf("continues %s: an evaluation learns nothing that another run could take along", c.Run)
	case c.MeanTokens < 0 || c.MeanTokens > maxBefore:
		return fmt.Errorf("continues %s: mean_tokens is %g", c.Run, c.MeanTokens)
	}
	counts := map[string]int64{"policy_version": c.PolicyVersion, "groups": c.Groups,
		"drawn": c.Drawn, "measured": c.Measured}
	for feed, step := range c.Steps {
		counts["steps."+feed] = step
	}
	for name, n := range counts {
		if n < 0 || n > maxBefore {
			return fmt.Errorf("continues %s: %.80s is %d", c.Run, name, n)
		}
	}
	known := map[string]bool{}
	for _, t := range cfg.Tasks {
		known[t.Name] = true
	}
	for name := range c.Tasks {
		if !known[name] {
			return fmt.Errorf("continues %s: the run has no task %.100q", c.Run, name)
		}
	}
	return nil
}
