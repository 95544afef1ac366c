package export

import (
	"context"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/ledger"
	"github.com/rondo-rl/rondo/storage"
)

// Rollout is an episode that has a trajectory file, with what its run made of it.
type Rollout struct {
	Rollout    string         `json:"rollout"`
	Task       string         `json:"task"`
	Outcome    ledger.Outcome `json:"outcome"` // for the first feed
	Reward     *float64       `json:"reward,omitempty"`
	Turns      int            `json:"turns"`
	Tokens     int            `json:"tokens"`
	StopReason string         `json:"stop_reason"`
	File       storage.Ref    `json:"file"`

	Run         string             `json:"-"`
	Invalidated bool               `json:"-"`
	Components  map[string]float64 `json:"-"` // of the reward
	Advantage   float64            `json:"-"` // 0 until the group is complete
	Policy      string             `json:"-"` // the name of the weights

	turns []turnShape // of a harness's rollout
}

// Finished reads the episodes of a run that have a trajectory file, by rollout.
func Finished(ctx context.Context, log *eventlog.Log, run string) ([]Rollout, error) {
	l := ledger.New(run)
	var lines []Rollout
	components, advantages := map[string]map[string]float64{}, map[string]float64{}
	turns := map[string][]turnShape{} // of harnesses' rollouts
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return nil, err
		}
		if err := l.Apply(e); err != nil {
			return nil, err
		}
		switch e.Type {
		case events.TurnSampledType:
			if !events.External(e.Entity) {
				continue
			}
			turn, err := events.Data[events.TurnSampled](e)
			if err != nil {
				return nil, err
			}
			turns[e.Entity] = append(turns[e.Entity], shapeOf(turn))
		case events.RolloutFinishedType:
			f, err := events.Data[events.RolloutFinished](e)
			if err != nil {
				return nil, err
			}
			lines = append(lines, Rollout{Rollout: e.Entity, Task: f.Task, Turns: f.Turns, Tokens: f.Tokens, StopReason: f.StopReason, File: f.Trajectory, Run: run})
		case events.RolloutScoredType:
			scored, err := events.Data[events.RolloutScored](e)
			if err != nil {
				return nil, err
			}
			components[e.Entity] = scored.Components
		case events.GroupCompletedType:
			completed, err := events.Data[events.GroupCompleted](e)
			if err != nil {
				return nil, err
			}
			for _, m := range completed.Members {
				advantages[m.Rollout] = m.Advantage
			}
		}
	}
	for i := range lines {
		line := &lines[i]
		line.turns = turns[line.Rollout]
		line.Outcome = l.Outcome(l.FirstFeed(), line.Rollout)
		if r, ok := l.Find(line.Rollout); ok && r.Scored {
			line.Reward, line.Invalidated = &r.Reward, r.Invalidated
			line.Components, line.Advantage = components[line.Rollout], advantages[line.Rollout]
		}
		line.Policy = l.Config.Policy
	}
	slices.SortFunc(lines, func(a, b Rollout) int { return strings.Compare(a.Rollout, b.Rollout) })
	return lines, nil
}

// Selection says which rollouts of a run are exported. Those without a reward and the invalidated ones never are.
type Selection struct {
	// MinReward is the least reward.
	MinReward float64
	// Best leaves the best rollout of each group, the first of equal ones.
	Best bool
}

// Select reads the selected rollouts of runs, by run and rollout.
func Select(ctx context.Context, log *eventlog.Log, runs []string, s Selection) (all []Rollout, err error) {
	for _, run := range slices.Compact(slices.Sorted(slices.Values(runs))) {
		list, err := Finished(ctx, log, run)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(r Rollout) bool { return r.Reward == nil || r.Invalidated || *r.Reward < s.MinReward })
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
	return slices.DeleteFunc(lines, func(t Rollout) bool { return best[events.GroupOf(t.Rollout)].Rollout != t.Rollout })
}
