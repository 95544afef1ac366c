package scorer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// Compare verifies the final workspace of a recorded rollout once more, under the run's own
// configuration and tests, and compares the verdict with the recorded one: reward,
// components and exit code. What the tests wrote is not compared, as most of them write how
// long they took. It states nothing and stores nothing. Rollouts that the scorer gave no
// outcome are ErrNothingToVerify.
func Compare(ctx context.Context, store storage.Store, opts Options, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *eventlog.Ended) ([]pipeline.Changed, error) {
	if err := verifiable(task, &r.Rollout); err != nil {
		return nil, err
	}
	noVerdict := r.Failed != nil && r.Failed.Stage == events.StageScorer && r.Failed.Class == events.ClassVerifier
	if r.Scored == nil && !noVerdict || pipeline.OriginalSource(r.Outcome) != topology.Scorer {
		return nil, fmt.Errorf("rollout %s: %w", r.ID, ErrNothingToVerify)
	}
	s := &Service{store: store, opts: opts}
	var now events.RolloutScored
	again, err := s.stagesAgain(ctx, cfg, task, &r.Rollout)
	if err == nil {
		now, _, err = s.verdict(ctx, cfg, task, again, recorded)
	}
	v := NoVerdict(err)
	if err != nil && v == nil {
		return nil, fmt.Errorf("verify rollout %s: %w", r.ID, err)
	}
	c := comparison{rollout: r.ID}
	c.stages(r.Steps, again.Steps)
	switch {
	case noVerdict && v == nil:
		c.value("outcome", r.Failed.Message, "reward "+number(now.Reward))
	case !noVerdict && v != nil:
		c.value("outcome", "reward "+number(r.Scored.Reward), v.Error())
	case !noVerdict:
		c.value("reward", number(r.Scored.Reward), number(now.Reward))
		c.value("exit_code", fmt.Sprint(r.Scored.ExitCode), fmt.Sprint(now.ExitCode))
		c.value("forfeit", classOf(r.Scored.Forfeit), classOf(now.Forfeit))
		c.components("", r.Scored.Components, now.Components)
		c.separation("", r.Scored.Verifier, now.Verifier)
	}
	return c.changed, nil
}

// comparison collects what differs between two verdicts.
type comparison struct {
	rollout string
	changed []pipeline.Changed
}

// separation compares how far tests and the code under test were apart, where that was recorded.
func (c *comparison) separation(prefix, recorded, now string) {
	if recorded != "" {
		c.value(prefix+"verifier", recorded, now)
	}
}

func (c *comparison) value(field, recorded, now string) {
	if recorded != now {
		d := pipeline.NewChanged(field, recorded, now)
		d.Rollout = c.rollout
		c.changed = append(c.changed, d)
	}
}

func (c *comparison) components(of string, recorded, now map[string]float64) {
	all := map[string]float64{}
	maps.Copy(all, recorded)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.value(of+"components."+name, component(recorded, name), component(now, name))
	}
}

func component(of map[string]float64, name string) string {
	if v, ok := of[name]; ok {
		return number(v)
	}
	return "none"
}

func classOf(f *events.Forfeit) string {
	if f == nil {
		return "none"
	}
	return f.Class
}
