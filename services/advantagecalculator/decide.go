// Package advantagecalculator computes a group's advantages once all of its
// members have an outcome.
package advantagecalculator

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Decider folds groups and their members' outcomes, and decides group_completed.
type Decider struct {
	run      string
	cfg      runfile.RunConfig
	estimate advantage.Estimator
}

// NewDecider makes the decider of one run.
func NewDecider(run string, cfg runfile.RunConfig) (*Decider, error) {
	estimate, err := advantage.New(cfg.Advantage.Estimator, cfg.Advantage.Params)
	return &Decider{run: run, cfg: cfg, estimate: estimate}, err
}

// group is the state of one open group; it is dropped when the group is complete.
type group struct {
	ID      string                      `json:"id"`
	Task    string                      `json:"task"`
	Origin  *events.Origin              `json:"origin,omitempty"` // of a group of forks
	Size    int                         `json:"size"`
	Members map[string]events.Member    `json:"members"`           // those with an outcome, by rollout
	Lengths map[string]advantage.Length `json:"lengths,omitempty"` // of those that finished; only shaping reads them
}

const (
	openGroups = "group/"
	whole      = "whole/"      // ids of the open groups whose members all have an outcome
	baselines  = "baseline/"   // by what groups are compared by, of estimators that remember one
	ofRoles    = "baseline-r/" // the same of a role, whose name comes before it
)

// baseline is the key of what a role of a group is compared with, "" where there are no roles.
// Forks begin half way, so their task's other groups are no measure for them.
func (g *group) baseline(role string) string {
	switch {
	case role != "":
		return ofRoles + role + "/" + g.Task // no environment can be forked
	case g.Origin == nil:
		return baselines + g.Task
	}
	return fmt.Sprintf("%s%s/%d/%s", baselines, g.Origin.Rollout, g.Origin.Turn, g.Task)
}

// roles are those of a group; one without a name where there are none.
func (d *Decider) roles(group string) []string {
	if roles := events.RolesIn(d.cfg, group); len(roles) > 0 {
		return roles
	}
	return []string{""}
}

// Apply folds one event.
func (d *Decider) Apply(tx *projection.Tx, e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		return d.begin(tx, e)
	case events.GroupOpenedType:
		opened, err := events.Data[events.GroupOpened](e)
		if err != nil {
			return err
		}
		return projection.Put(tx, openGroups+e.Entity,
			group{ID: e.Entity, Task: opened.Task, Origin: opened.Origin, Size: opened.Size,
				Members: map[string]events.Member{}})
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		if err != nil {
			return err
		}
		return d.outcome(tx, e.Entity, events.Member{Rollout: e.Entity, Reward: scored.Reward})
	case events.RolloutFailedType, events.RolloutInvalidatedType:
		return d.outcome(tx, e.Entity, events.Member{Rollout: e.Entity, Failed: true})
	case events.RolloutFinishedType:
		return d.finished(tx, e)
	case events.GroupCompletedType:
		return errors.Join(d.remember(tx, e), tx.Delete(openGroups+e.Entity), tx.Delete(whole+e.Entity))
	}
	return nil
}

// finished keeps how long a rollout was until its group is complete.
func (d *Decider) finished(tx *projection.Tx, e events.Event) error {
	if d.cfg.Shaping == (runfile.Shaping{}) {
		return nil
	}
	finished, err := events.Data[events.RolloutFinished](e)
	if err != nil {
		return err
	}
	key := openGroups + events.GroupOf(e.Entity)
	g, ok, err := projection.Get[group](tx, key)
	if !ok || err != nil || !g.has(e.Entity) {
		return err
	}
	if g.Lengths == nil {
		g.Lengths = map[string]advantage.Length{}
	}
	sampled := finished.AllSampled() // what is not trained on was effort, too
	g.Lengths[e.Entity] = advantage.Length{Output: sampled, Input: finished.Tokens - sampled, Turns: finished.Turns}
	return projection.Put(tx, key, g)
}

// remember moves the baseline as the completed group did. It follows from the facts alone, so that
// a restart, and whoever replays the run, comes to the same one.
func (d *Decider) remember(tx *projection.Tx, e events.Event) error {
	if !d.estimate.Remembers() {
		return nil
	}
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	g, _, err := projection.Get[group](tx, openGroups+e.Entity)
	if err != nil {
		return err
	}
	g.Task = completed.Task
	for _, role := range d.roles(e.Entity) {
		var compared []float64
		for _, m := range completed.Members {
			if !m.Failed && m.Role == role {
				compared = append(compared, m.Shaped)
			}
		}
		baseline, _, err := projection.Get[float64](tx, g.baseline(role))
		if err != nil {
			return err
		}
		_, after := d.estimate.Group(compared, baseline)
		if err := projection.Put(tx, g.baseline(role), after); err != nil {
			return err
		}
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
	if err := projection.Put(tx, key, g); err != nil || len(g.Members) < g.Size {
		return err
	}
	return projection.Put(tx, whole+g.ID, g.ID)
}

// has reports whether a rollout is one of the group's members: what outsiders
// invalidate need not exist.
func (g *group) has(rollout string) bool {
	for i := range g.Size {
		if events.RolloutID(g.ID, i) == rollout {
			return true
		}
	}
	return false
}

// Decide completes every group whose members all have an outcome. Where a task's
// baseline is remembered, its groups are completed one after the other: each is compared
// with what the last one left.
func (d *Decider) Decide(v projection.View, _ uint64, _ time.Time) ([]events.Event, time.Time, error) {
	var facts []events.Event
	moved := map[string]bool{}
	for id, err := range projection.Scan[string](v, whole) { // and not all open ones: a decision comes with each event
		if err != nil {
			return nil, time.Time{}, err
		}
		g, _, err := projection.Get[group](v, openGroups+id)
		if err != nil {
			return nil, time.Time{}, err
		}
		roles := d.roles(g.ID)
		if moved[g.baseline(roles[0])] {
			continue
		}
		moved[g.baseline(roles[0])] = d.estimate.Remembers()
		completed, err := d.complete(v, g, roles)
		if err != nil {
			return nil, time.Time{}, err
		}
		fact, err := events.New(d.run, events.GroupCompletedType, g.ID, "0", completed)
		if err != nil {
			return nil, time.Time{}, err
		}
		facts = append(facts, fact)
	}
	return facts, time.Time{}, nil
}

// complete gives each member its advantage among those of its role: A_i = estimator(r_j of the
// members j with the role of i). What another role gets on average says nothing of how well this
// one did, as in SPIRAL's role-conditioned estimation (Liu et al. 2025, arXiv:2506.24119).
func (d *Decider) complete(v projection.View, g group, roles []string) (events.GroupCompleted, error) {
	members := make([]events.Member, g.Size)
	var rewards []float64
	for i := range members {
		members[i] = g.Members[events.RolloutID(g.ID, i)]
		members[i].Role = roles[i%len(roles)]
		if !members[i].Failed {
			rewards = append(rewards, members[i].Reward)
		}
	}
	for k, role := range roles {
		baseline, _, err := projection.Get[float64](v, g.baseline(role))
		if err != nil {
			return events.GroupCompleted{}, err
		}
		d.compare(g, members, k, len(roles), baseline)
	}
	return events.GroupCompleted{Task: g.Task, Estimator: d.cfg.Advantage.Estimator, Members: members,
		Mean: advantage.Mean(rewards)}, nil
}

// compare compares the members of one role: each n-th one from a first one on.
func (d *Decider) compare(g group, members []events.Member, first, n int, baseline float64) {
	var scored []int
	var rewards []float64
	var lengths []advantage.Length
	for i := first; i < len(members); i += n {
		if !members[i].Failed {
			scored = append(scored, i)
			rewards = append(rewards, members[i].Reward)
			lengths = append(lengths, g.Lengths[members[i].Rollout])
		}
	}
	compared := shape(d.cfg.Shaping, rewards, lengths)
	if d.cfg.Advantage.ShuffleRewards {
		compared = advantage.Shuffle(compared, shuffleSeed(d.cfg.Seed, g.ID+members[first].Role))
	}
	advantages, _ := d.estimate.Group(compared, baseline)
	for k, a := range advantages {
		members[scored[k]].Shaped, members[scored[k]].Advantage = compared[k], a
	}
}

// shape takes off what a run's shaping says that long rollouts lose.
func shape(s runfile.Shaping, rewards []float64, lengths []advantage.Length) []float64 {
	shaped := slices.Clone(rewards)
	if p := s.Length; p != nil {
		for i, penalty := range advantage.LinearLengthPenalty(rewards, lengths,
			advantage.LengthWeights{Output: p.Output, Input: p.Input, Turns: p.Turns}) {
			shaped[i] -= penalty
		}
	}
	if p := s.SoftOverlong; p != nil {
		for i, l := range lengths {
			shaped[i] += advantage.SoftOverlong(l.Output, p.MaxTokens, p.Buffer, cmp.Or(p.Factor, 1))
		}
	}
	for i := range shaped {
		if !advantage.Scored(shaped[i]) {
			shaped[i] = rewards[i] // so large that it overflows
		}
	}
	return shaped
}

func shuffleSeed(seed int64, group string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(group))
	return h.Sum64() ^ uint64(seed)
}
