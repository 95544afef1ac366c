package querysampler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// completeGroups starts the members that a sampler which died between two appends has left out. Of an outsider's group it
// starts those that nobody started in time, or in a run that is closed: they fail at once, and the group can complete.
func (d *Decider) completeGroups(v projection.View, p *plan, s state, now time.Time) {
	for g, err := range projection.Scan[group](v, halfOpen) {
		if err != nil {
			p.fail(err)
			return
		}
		var n int64
		if _, err := fmt.Sscanf(g.ID, "g%d", &n); err != nil && !events.External(g.ID) {
			p.fail(fmt.Errorf("group %q: %w", g.ID, err))
			return
		}
		deadline := now.Add(time.Duration(d.cfg.Limits.Timeout))
		if events.External(g.ID) {
			if g.Expires.After(now) && !s.Closed {
				p.wakeAt(g.Expires)
				continue
			}
			deadline = now
		}
		d.start(p, g, s.GroupsBefore+n, deadline)
	}
}

// start starts the members of a group that are missing, the n-th of this run and those that it continues. All of them carry the group's version:
// they are compared.
func (d *Decider) start(p *plan, g group, n int64, deadline time.Time) {
	for _, i := range g.Missing {
		if !events.External(g.ID) {
			p.underWay++
			p.asking++
		}
		p.add(events.New(d.run, events.RolloutStartedType, events.RolloutID(g.ID, i), "0", events.RolloutStarted{
			Group: g.ID, Member: i, Role: events.RoleOf(d.cfg, g.ID, i), Task: g.Task, PolicyVersion: g.PolicyVersion,
			Seed: rolloutSeed(d.cfg.Seed, n, i), Deadline: deadline.UTC(), Origin: g.Origin,
		}))
	}
}

// endRollouts fails the rollouts that are overdue, or all when the run is closed, in the order of their names.
func (d *Decider) endRollouts(v projection.View, p *plan, s state, now time.Time) {
	if s.Closed {
		for r, err := range projection.Scan[inFlight](v, flying) {
			if err != nil {
				p.fail(err)
				return
			}
			d.fail(p, r.ID, events.ClassCancelled, "the run was closed")
		}
		return
	}
	p.underWay, p.asking = s.UnderWay, s.Asking
	var overdue []deadline
	for r, err := range projection.Scan[deadline](v, due) {
		if err != nil {
			p.fail(err)
			return
		}
		if r.At.After(now) {
			p.wakeAt(r.At)
			break
		}
		overdue = append(overdue, r)
	}
	slices.SortFunc(overdue, func(a, b deadline) int { return strings.Compare(a.Rollout, b.Rollout) })
	for _, r := range overdue {
		message := fmt.Sprintf("no outcome within %s", time.Duration(d.cfg.Limits.Timeout))
		if !events.External(r.Rollout) {
			p.underWay--
		} else {
			message = fmt.Sprintf("no outcome by its deadline, %s", r.At.UTC().Format(time.RFC3339))
		}
		d.fail(p, r.Rollout, events.ClassDeadline, message)
	}
}

func (d *Decider) fail(p *plan, rollout, class, message string) {
	p.add(events.New(d.run, events.RolloutFailedType, rollout, "0", events.RolloutFailed{Stage: events.StageSampler, Class: class, Message: message}))
}

// deadline is when a rollout in flight has had its time. Deadlines are kept in their order, as every decision asks for the next one.
type deadline struct {
	Rollout string    `json:"rollout"`
	At      time.Time `json:"at"`
}

// key sorts as the deadlines do.
func (d deadline) key() string {
	return due + d.At.UTC().Format("20060102T150405.000000000") + "/" + d.Rollout
}

// begin notes a rollout that is in flight now.
func (r inFlight) begin(tx *projection.Tx, s *state) error {
	if !events.External(r.ID) {
		s.UnderWay++
	}
	at := deadline{r.ID, r.Deadline}
	return errors.Join(projection.Put(tx, flying+r.ID, r), projection.Put(tx, at.key(), at))
}

// end forgets a rollout that has its outcome.
func (d *Decider) end(tx *projection.Tx, s *state, r inFlight) error {
	if !events.External(r.ID) {
		s.UnderWay--
		s.Asking -= d.asks(r)
	}
	return errors.Join(tx.Delete(flying+r.ID), tx.Delete(deadline{r.ID, r.Deadline}.key()))
}

func rolloutSeed(seed, n int64, member int) int64 {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)<<16|uint64(member)))
	return rng.Int64()
}
