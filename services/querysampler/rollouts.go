package querysampler

import (
	"fmt"
	"math/rand/v2"
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
		}
		p.add(events.New(d.run, events.RolloutStartedType, events.RolloutID(g.ID, i), "0", events.RolloutStarted{
			Group: g.ID, Member: i, Task: g.Task, PolicyVersion: g.PolicyVersion,
			Seed: rolloutSeed(d.cfg.Seed, n, i), Deadline: deadline.UTC(), Origin: g.Origin,
		}))
	}
}

// endRollouts fails the rollouts that are overdue, or all when the run is closed.
func (d *Decider) endRollouts(v projection.View, p *plan, s state, now time.Time) {
	for r, err := range projection.Scan[inFlight](v, flying) {
		if err != nil {
			p.fail(err)
			return
		}
		failed := events.RolloutFailed{Stage: events.StageSampler}
		switch {
		case s.Closed:
			failed.Class, failed.Message = events.ClassCancelled, "the run was closed"
		case r.Deadline.After(now):
			if !events.External(r.ID) {
				p.underWay++
			}
			p.wakeAt(r.Deadline)
			continue
		case events.External(r.ID):
			failed.Class, failed.Message = events.ClassDeadline, fmt.Sprintf("no outcome by its deadline, %s", r.Deadline.UTC().Format(time.RFC3339))
		default:
			failed.Class, failed.Message = events.ClassDeadline, fmt.Sprintf("no outcome within %s", time.Duration(d.cfg.Limits.Timeout))
		}
		p.add(events.New(d.run, events.RolloutFailedType, r.ID, "0", failed))
	}
}

func rolloutSeed(seed, n int64, member int) int64 {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)<<16|uint64(member)))
	return rng.Int64()
}
