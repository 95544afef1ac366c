// Package advantagecalculator computes a group's advantages once all of its members have an outcome.
package advantagecalculator

import (
	"hash/fnv"
	"time"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Decider folds groups and their members' outcomes, and decides group_completed.
type Decider struct {
	run      string
	cfg      events.RunConfig
	estimate advantage.Estimator
}

// NewDecider makes the decider of one run.
func NewDecider(run string, cfg events.RunConfig) (*Decider, error) {
	estimate, err := advantage.ByName(cfg.Advantage.Estimator)
	return &Decider{run: run, cfg: cfg, estimate: estimate}, err
}

// group is the state of one open group; it is dropped when the group is complete.
type group struct {
	ID      string                   `json:"id"`
	Task    string                   `json:"task"`
	Size    int                      `json:"size"`
	Members map[string]events.Member `json:"members"` // those with an outcome, by rollout
}

const openGroups = "group/"

// Apply folds one event.
func (d *Decider) Apply(tx *projection.Tx, e events.Event) error {
	switch e.Type {
	case events.GroupOpenedType:
		opened, err := events.Data[events.GroupOpened](e)
		if err != nil {
			return err
		}
		return projection.Put(tx, openGroups+e.Entity, group{ID: e.Entity, Task: opened.Task, Size: opened.Size, Members: map[string]events.Member{}})
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		if err != nil {
			return err
		}
		return d.outcome(tx, e.Entity, events.Member{Rollout: e.Entity, Reward: scored.Reward})
	case events.RolloutFailedType, events.RolloutInvalidatedType:
		return d.outcome(tx, e.Entity, events.Member{Rollout: e.Entity, Failed: true})
	case events.GroupCompletedType:
		return tx.Delete(openGroups + e.Entity)
	}
	return nil
}

func (d *Decider) outcome(tx *projection.Tx, rollout string, m events.Member) error {
	key := openGroups + events.GroupOf(rollout)
	g, ok, err := projection.Get[group](tx, key)
	if !ok || err != nil || !g.has(rollout) {
		return err
	}
	if known, ok := g.Members[rollout]; ok && known.Failed {
		return nil // invalidated before it was scored
	}
	g.Members[rollout] = m
	return projection.Put(tx, key, g)
}

// has reports whether a rollout is one of the group's members: what outsiders invalidate need not exist.
func (g *group) has(rollout string) bool {
	for i := range g.Size {
		if events.RolloutID(g.ID, i) == rollout {
			return true
		}
	}
	return false
}

// Decide completes every group whose members all have an outcome.
func (d *Decider) Decide(v projection.View, _ uint64, _ time.Time) ([]events.Event, time.Time, error) {
	var facts []events.Event
	for g, err := range projection.Scan[group](v, openGroups) {
		if err != nil {
			return nil, time.Time{}, err
		}
		if len(g.Members) < g.Size {
			continue
		}
		fact, err := events.New(d.run, events.GroupCompletedType, g.ID, "0", d.complete(g))
		if err != nil {
			return nil, time.Time{}, err
		}
		facts = append(facts, fact)
	}
	return facts, time.Time{}, nil
}

func (d *Decider) complete(g group) events.GroupCompleted {
	members := make([]events.Member, g.Size)
	var scored []int
	var rewards []float64
	for i := range members {
		members[i] = g.Members[events.RolloutID(g.ID, i)]
		if !members[i].Failed {
			scored = append(scored, i)
			rewards = append(rewards, members[i].Reward)
		}
	}
	compared := rewards
	if d.cfg.Advantage.ShuffleRewards {
		compared = advantage.Shuffle(rewards, shuffleSeed(d.cfg.Seed, g.ID))
	}
	for k, a := range d.estimate(compared) {
		members[scored[k]].Advantage = a
	}
	return events.GroupCompleted{Task: g.Task, Estimator: d.cfg.Advantage.Estimator, Members: members, Mean: advantage.Mean(rewards)}
}

func shuffleSeed(seed int64, group string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(group))
	return h.Sum64() ^ uint64(seed)
}
