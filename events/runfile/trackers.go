package runfile

import (
	"fmt"
	"slices"
	"strings"
)

// Tracker is an experiment tracker that shall have the run's training steps. It names no folder,
// address or key: these are of whoever runs `rondo track`.
type Tracker struct {
	// To is one of Trackers.
	To string `json:"to" yaml:"to"`
	// Project is the project of wandb and trackio, the experiment of MLflow; ""
	// leaves it to `rondo track`.
	Project string `json:"project,omitempty" yaml:"project" absent:"the one that rondo track names"`
	// Feed is the feed whose steps are written; "" is the run's first.
	Feed string `json:"feed,omitempty" yaml:"feed" absent:"the run's first feed"`
}

// Trackers are those that `rondo track` writes to.
var Trackers = []string{"mlflow", "tensorboard", "trackio", "wandb"}

// Bounds of a run's trackers.
const (
	maxTrackers = 8
	maxProject  = 128 // bytes
)

func (c *RunConfig) validateTrackers() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Trackers) <= maxTrackers, "trackers: %d of them, at most %d", len(c.Trackers), maxTrackers)
	check(len(c.Trackers) == 0 || len(c.Feeds) > 0, "trackers: the run has no feeds, so it has no training steps")
	for i, t := range c.Trackers {
		check(slices.Contains(Trackers, t.To), "trackers: %d: to %.80q: must be %s", i, t.To,
			strings.Join(Trackers, ", "))
		// it becomes an argument of a program
		named := t.Project == "" || ValidToken(t.Project[:1]) && t.Project[0] != '-'
		check(named && len(t.Project) <= maxProject &&
			!strings.ContainsFunc(t.Project, func(r rune) bool { return r < ' ' || r == 0x7f }),
			"trackers: %d: project %.80q: begin with a letter or a digit, and use at most %d bytes and no control characters",
			i, t.Project, maxProject)
		check(t.Feed == "" || slices.ContainsFunc(c.Feeds, func(f Feed) bool { return f.Name == t.Feed }),
			"trackers: %d: the run has no feed %.80q", i, t.Feed)
		check(!slices.Contains(c.Trackers[:i], t), "trackers: %d appears twice", i)
	}
	return errs
}
