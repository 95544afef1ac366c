package export

import (
	"context"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// Rollout is an episode that has a trajectory file, with what its run made of it.
type Rollout struct {
	Rollout    string        `json:"rollout"`
	Task       string        `json:"task"`
	Outcome    books.Outcome `json:"outcome"` // for the first feed
	Reward     *float64      `json:"reward,omitempty"`
	Turns      int           `json:"turns"`
	Tokens     int           `json:"tokens"`
	StopReason string        `json:"stop_reason"`
	File       storage.Ref   `json:"file"`

	Run         string             `json:"-"`
	Invalidated bool               `json:"-"`
	Components  map[string]float64 `json:"-"` // of the reward
	Advantage   float64            `json:"-"` // 0 until the group is complete
	Policy      string             `json:"-"` // the name of the weights

	answering func(rule string) string // the model that answers a rule's conversations, "" for the policy

	turns []turnShape // of a harness's rollout
}

// Finished reads the episodes of a run that have a trajectory file, by rollout.
func Finished(ctx context.Context, log eventlog.Reader, run string) ([]Rollout, error) {
	l := books.New(run)
	l.Detailed = func(string) bool { return true }
	turns := map[string][]turnShape{} // of harnesses' and agents' rollouts
	if err := l.Read(ctx, log, func(e events.Event) error {
		if e.Type == events.WorkspaceAnsweredType {
			answered, err := events.Data[events.WorkspaceAnswered](e)
			if answered.Agent != nil {
				turns[e.Entity] = leave(turns[e.Entity], answered.Agent.Left)
			}
			return err
		}
		if e.Type != events.TurnSampledType {
			return nil
		}
		turn, err := events.Data[events.TurnSampled](e)
		if events.External(e.Entity) || turn.HasRequest() {
			turns[e.Entity] = append(turns[e.Entity], shapeOf(turn))
		}
		return err
	}); err != nil {
		return nil, err
	}
	var lines []Rollout
	for r := range l.All() {
		if !r.Finished {
			continue
		}
		line := Rollout{
			Rollout: r.ID, Task: r.Task, Outcome: l.Outcome(l.FirstFeed(), r.ID),
			Turns: r.Turns, Tokens: r.Tokens, StopReason: r.StopReason, File: r.Detail.Trajectory, Run: run,
			Policy: l.Config.Policy, answering: l.Config.AnsweredBy, turns: turns[r.ID],
		}
		if r.Scored {
			line.Reward, line.Invalidated = &r.Reward, r.Invalidated
			line.Components, line.Advantage = r.Detail.Components, r.Advantage()
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b Rollout) int { return strings.Compare(a.Rollout, b.Rollout) })
	return lines, nil
}

// Selection says which rollouts of a run are exported. Those without a reward and the
// invalidated ones never are.
type Selection struct {
	// MinReward is the least reward.
	MinReward float64
	// Best leaves the best rollout of each group, the first of equal ones.
	Best bool
}

// Select reads the selected rollouts of runs, by run and rollout.
func Select(ctx context.Context, log eventlog.Reader, runs []string, s Selection) (all []Rollout, err error) {
	for _, run := range slices.Compact(slices.Sorted(slices.Values(runs))) {
		list, err := Finished(ctx, log, run)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(r Rollout) bool {
			return r.Reward == nil || r.Invalidated ||
				*r.Reward < s.MinReward
		})
		if s.Best {
			list = bestOfGroups(list)
		}
		all = append(all, list...)
	}
	return all, nil
}

// bestOfGroups keeps of each group the rollout with the highest reward, the first of equal ones.
func bestOfGroups(lines []Rollout) []Rollout {
	best := map[string]Rollout{}
	for _, t := range lines {
		group := events.GroupOf(t.Rollout)
		if b, ok := best[group]; !ok || *t.Reward > *b.Reward {
			best[group] = t
		}
	}
	return slices.DeleteFunc(lines, func(t Rollout) bool {
		return best[events.GroupOf(
			t.Rollout)].Rollout != t.Rollout
	})
}
