// Package querysampler decides which task is tried next, how much may be in flight, and when a rollout has
// had its time.
package querysampler

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// fullAt is the fill of the run's stream at which the sampler pauses the run: what is in flight must still
// find room to end.
const fullAt = 0.7

// eventOverhead is what a message costs on disk beside its body: subject, headers and record, in bytes.
const eventOverhead = 640

// Decider folds a run into what the sampler must know, and decides group_opened, rollout_started,
// rollout_failed (deadline, cancelled), run_paused and run_closed.
type Decider struct {
	run      string
	cfg      events.RunConfig
	capacity int64
	maxBytes int64
}

// NewDecider makes the decider of one run.
func NewDecider(run string, cfg events.RunConfig) *Decider {
	return &Decider{
		run: run, cfg: cfg,
		capacity: (cfg.Staleness.Max + 1) * int64(cfg.Feeds[0].GroupsPerBatch),
		maxBytes: events.Stream(events.RunStream(run)).MaxBytes,
	}
}

// Decide closes a finished run, ends what is overdue or cancelled, completes half-opened groups, and opens
// new ones as far as the capacity goes.
func (d *Decider) Decide(v projection.View, _ uint64, now time.Time) ([]events.Event, time.Time, error) {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil {
		return nil, time.Time{}, err
	}
	var p plan
	wake := d.endRollouts(v, &p, s, now)
	if s.Closed {
		// A group that was half opened gets its members, so that it can complete: the next decision cancels them.
		d.completeGroups(v, &p, s, now)
	}
	if s.Closed || !s.Opened {
		return p.facts, wake, p.err
	}
	if d.cfg.Steps > 0 && s.ThroughStep >= d.cfg.Steps {
		p.add(events.New(d.run, events.RunClosedType, d.run, "0", events.RunClosed{Reason: fmt.Sprintf("all %d steps are trained", d.cfg.Steps)}))
		return p.facts, wake, p.err
	}
	d.completeGroups(v, &p, s, now)
	if !s.Paused && d.maxBytes > 0 && float64(s.Bytes) > fullAt*float64(d.maxBytes) {
		reason := fmt.Sprintf("the run's stream is %.0f %% full", 100*float64(s.Bytes)/float64(d.maxBytes))
		p.add(events.New(d.run, events.RunPausedType, d.run, fmt.Sprintf("full-%d", s.Pauses), events.RunPaused{Reason: reason}))
		return p.facts, wake, p.err
	}
	for n := s.Groups + 1; !s.Paused && s.Uncovered < d.capacity && d.wanted(s); n++ {
		d.open(&p, s, n, now)
		s.Uncovered++
		s.Useful++
	}
	return p.facts, wake, p.err
}

// wanted reports whether the run still needs another group for its steps.
func (d *Decider) wanted(s state) bool {
	return d.cfg.Steps == 0 || s.Useful < d.cfg.Steps*int64(d.cfg.Feeds[0].GroupsPerBatch)
}

// open opens group n and starts its members.
func (d *Decider) open(p *plan, s state, n int64, now time.Time) {
	id := events.GroupID(n)
	g := group{ID: id, Task: d.task(n), PolicyVersion: s.PolicyVersion}
	p.add(events.New(d.run, events.GroupOpenedType, id, "0", events.GroupOpened{Task: g.Task, Size: d.cfg.GroupSize, PolicyVersion: g.PolicyVersion}))
	d.start(p, g, n, 0, now)
}

// completeGroups starts the members that a sampler which died between two appends has left out.
func (d *Decider) completeGroups(v projection.View, p *plan, s state, now time.Time) {
	for g, err := range projection.Scan[group](v, halfOpen) {
		if err != nil {
			p.err = err
			return
		}
		var n int64
		if _, err := fmt.Sscanf(g.ID, "g%d", &n); err != nil {
			p.err = fmt.Errorf("group %q: %w", g.ID, err)
			return
		}
		d.start(p, g, n, g.Started, now)
	}
}

// start starts the members of a group from one on. All members carry the group's version: they are compared.
func (d *Decider) start(p *plan, g group, n int64, from int, now time.Time) {
	for i := from; i < d.cfg.GroupSize; i++ {
		p.add(events.New(d.run, events.RolloutStartedType, events.RolloutID(g.ID, i), "0", events.RolloutStarted{
			Group: g.ID, Member: i, Task: g.Task, PolicyVersion: g.PolicyVersion,
			Seed: rolloutSeed(d.cfg.Seed, n, i), Deadline: now.Add(time.Duration(d.cfg.Limits.Timeout)).UTC(),
		}))
	}
}

// endRollouts fails the rollouts that are overdue, or all when the run is closed. It returns the next deadline.
func (d *Decider) endRollouts(v projection.View, p *plan, s state, now time.Time) (wake time.Time) {
	for r, err := range projection.Scan[inFlight](v, flying) {
		if err != nil {
			p.err = err
			return wake
		}
		failed := events.RolloutFailed{Stage: events.StageSampler}
		switch {
		case s.Closed:
			failed.Class, failed.Message = events.ClassCancelled, "the run was closed"
		case !r.Deadline.After(now):
			failed.Class, failed.Message = events.ClassDeadline, fmt.Sprintf("no outcome within %s", time.Duration(d.cfg.Limits.Timeout))
		default:
			if wake.IsZero() || r.Deadline.Before(wake) {
				wake = r.Deadline
			}
			continue
		}
		p.add(events.New(d.run, events.RolloutFailedType, r.ID, "0", failed))
	}
	return wake
}

// task draws uniformly without replacement: each epoch is a fresh permutation of the tasks.
func (d *Decider) task(n int64) string {
	count := int64(len(d.cfg.Tasks))
	epoch, at := (n-1)/count, (n-1)%count
	rng := rand.New(rand.NewPCG(uint64(d.cfg.Seed), uint64(epoch)))
	return d.cfg.Tasks[rng.Perm(int(count))[at]].Name
}

func rolloutSeed(seed, n int64, member int) int64 {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)<<16|uint64(member)))
	return rng.Int64()
}

// plan collects facts and the first error.
type plan struct {
	facts []events.Event
	err   error
}

func (p *plan) add(e events.Event, err error) {
	if p.err == nil {
		p.err = err
	}
	p.facts = append(p.facts, e)
}
