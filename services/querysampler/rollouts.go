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

// completeGroups starts the members that a sampler which died between two appends has left out. Of
// an outsider's group it starts those that nobody started in time, or in a run that is closed: they
// fail at once, and the group can complete.
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
			if expires := g.Clock.Due(g.ID, g.Expires, "", d.cfg.Limits); expires.After(now) && !s.Closed {
				p.wakeAt(expires)
				continue
			}
			deadline = now
		}
		d.start(p, g, s.GroupsBefore+n, deadline)
	}
}

// start starts the members of a group that are missing, the n-th of this run and those that it
// continues. All of them carry the group's version: they are compared.
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

// endRollouts fails the rollouts that are overdue, or all when the run is closed, in
// the order of their names.
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
	for _, at := range overdue {
		r, _, err := projection.Get[inFlight](v, flying+at.Rollout)
		if err != nil {
			p.fail(err)
			return
		}
		if !events.External(at.Rollout) {
			p.underWay--
		}
		d.fail(p, at.Rollout, events.ClassDeadline, d.overdue(r, at.At))
	}
}

// overdue says how a rollout came to be due without an outcome. What its agent has not used the
// plane has: it waited, or a stage hangs.
func (d *Decider) overdue(r inFlight, due time.Time) string {
	if events.External(r.ID) {
		return fmt.Sprintf("no outcome by its deadline, %s", due.UTC().Format(time.RFC3339))
	}
	limit, moved := time.Duration(d.cfg.Limits.Timeout), r.Moved
	if moved.IsZero() {
		moved = r.Deadline.Add(-limit)
	}
	return fmt.Sprintf("no outcome within limits.timeout, %s: its agent has used %s, and the stage %s has not brought it on for %s",
		limit, r.Used.Round(time.Millisecond), r.Stage, due.Sub(moved).Round(time.Millisecond))
}

func (d *Decider) fail(p *plan, rollout, class, message string) {
	p.add(events.New(d.run, events.RolloutFailedType, rollout,
		"0", events.RolloutFailed{Stage: events.StageSampler, Class: class, Message: message}))
}

// deadline is when a rollout in flight has had its time. Deadlines are kept in their order, as
// every decision asks for the next one.
type deadline struct {
	Rollout string    `json:"rollout"`
	At      time.Time `json:"at"`
}

// key sorts as the deadlines do.
func (d deadline) key() string {
	return due + d.At.UTC().Format("20060102T150405.000000000") + "/" + d.Rollout
}

// due is when a rollout in flight fails, unless it goes on until then.
func (d *Decider) due(r inFlight) deadline {
	return deadline{r.ID, r.Due(r.ID, r.Deadline, r.Stage, d.cfg.Limits)}
}

// add notes a rollout that is in flight now.
func (d *Decider) add(tx *projection.Tx, s *state, r inFlight) error {
	if !events.External(r.ID) {
		s.UnderWay++
	}
	at := d.due(r)
	return errors.Join(projection.Put(tx, flying+r.ID, r), projection.Put(tx, at.key(), at))
}

// update notes a rollout that has gone on, in place of what was known of it.
func (d *Decider) update(tx *projection.Tx, before, now inFlight) error {
	err := projection.Put(tx, flying+now.ID, now)
	if was, is := d.due(before), d.due(now); !was.At.Equal(is.At) {
		err = errors.Join(err, tx.Delete(was.key()), projection.Put(tx, is.key(), is))
	}
	return err
}

// applyWaited takes the time of an outage off the clocks of the rollouts at the
// stage that waits for its end.
func (d *Decider) applyWaited(tx *projection.Tx, s *state, e events.Event) error {
	waited, err := events.Data[events.StageWaited](e)
	if err != nil {
		return err
	}
	if s.Waited == nil {
		s.Waited = map[string]events.Span{}
	}
	if last := s.Waited[e.Entity]; waited.Until.After(last.Until) {
		s.Waited[e.Entity] = waited.Span()
	}
	var flown []inFlight
	for r, err := range projection.Scan[inFlight](tx, flying) {
		if err != nil {
			return err
		}
		flown = append(flown, r)
	}
	for _, r := range flown {
		before := r
		if e.Entity == r.Stage || e.Entity == events.EveryStage {
			r.Wait(r.ID, r.Stage, waited.Span())
		}
		if err := d.update(tx, before, r); err != nil {
			return err
		}
	}
	return waitInGroups(tx, e.Entity, waited.Span())
}

// waitInGroups lets outsiders start the missing members of their groups later by the time of an
// outage: who makes one member after the other may have waited for the tools or the verdict of one.
func waitInGroups(tx *projection.Tx, stage string, w events.Span) error {
	var open []group
	for g, err := range projection.Scan[group](tx, halfOpen) {
		if err != nil {
			return err
		}
		if events.External(g.ID) {
			open = append(open, g)
		}
	}
	for _, g := range open {
		g.Clock.Wait(g.ID, stage, w)
		if err := projection.Put(tx, halfOpen+g.ID, g); err != nil {
			return err
		}
	}
	return nil
}

// excuse lets a rollout that has come to a stage wait for the end of an outage
// that the log told of before.
func (s *state) excuse(r *inFlight) {
	r.Wait(r.ID, r.Stage, s.Waited[r.Stage])
	r.Wait(r.ID, r.Stage, s.Waited[events.EveryStage])
}

// Keeps implements pipeline.Timekeeper: there are rollouts in flight, or groups of outsiders whose
// members are not all started.
func (d *Decider) Keeps(v projection.View) bool {
	for g, err := range projection.Scan[group](v, halfOpen) {
		if err != nil || events.External(g.ID) {
			return true
		}
	}
	for range projection.Scan[inFlight](v, flying) {
		return true
	}
	return false
}

// end forgets a rollout that has its outcome.
func (d *Decider) end(tx *projection.Tx, s *state, r inFlight) error {
	if !events.External(r.ID) {
		s.UnderWay--
		s.Asking -= d.asks(r)
	}
	return errors.Join(tx.Delete(flying+r.ID), tx.Delete(d.due(r).key()))
}

func rolloutSeed(seed, n int64, member int) int64 {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)<<16|uint64(member)))
	return rng.Int64()
}
