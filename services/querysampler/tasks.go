package querysampler

import (
	"math/rand/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// drawer makes the function that says which task is drawn n-th, counted from 1.
func (d *Decider) drawer(v projection.View) (func(n int64) string, error) {
	tasks, err := d.fitting(v)
	if err != nil {
		return nil, err
	}
	if d.cfg.Curriculum == nil || len(tasks) == 0 {
		return func(n int64) string { return d.permuted(tasks, n) }, nil
	}
	weights, total := make([]float64, len(tasks)), 0.0
	for i, t := range tasks {
		p, tried, err := projection.Get[float64](v, passRates+t.Name)
		if err != nil {
			return nil, err
		}
		weights[i] = weight(*d.cfg.Curriculum, p, tried)
		total += weights[i]
	}
	return func(n int64) string {
		rng := rand.New(rand.NewPCG(uint64(d.cfg.Seed), uint64(n)))
		at := float64(rng.Float64() * total)
		for i, w := range weights {
			if at -= w; at < 0 {
				return tasks[i].Name
			}
		}
		return tasks[len(weights)-1].Name // by rounding
	}, nil
}

// weight is what events.Curriculum says of a task with pass rate p.
func weight(c runfile.Curriculum, p float64, tried bool) float64 {
	if !tried {
		return 1
	}
	floor := c.Least()
	return floor + float64((1-floor)*4*p*(1-p))
}

// passRate moves a task's pass rate by that of a completed group. ok is false for a
// group that says nothing.
func passRate(c runfile.Curriculum, before float64, tried bool, members []events.Member) (after float64, ok bool) {
	scored, passed := 0, 0
	for _, m := range members {
		if m.Failed {
			continue
		}
		scored++
		if m.Reward >= c.Passes() {
			passed++
		}
	}
	if scored == 0 {
		return before, false
	}
	rate := float64(passed) / float64(scored)
	if !tried {
		return rate, true
	}
	decay := c.Decays()
	return float64(decay*before) + float64((1-decay)*rate), true
}

// permuted draws uniformly without replacement: each epoch is a fresh permutation of the tasks.
func (d *Decider) permuted(tasks []runfile.TaskSpec, n int64) string {
	count := int64(len(tasks))
	epoch, at := (n-1)/count, (n-1)%count
	rng := rand.New(rand.NewPCG(uint64(d.cfg.Seed), uint64(epoch)))
	return tasks[rng.Perm(int(count))[at]].Name
}

// fitting are the tasks that are drawn: those that do not fit into the server's context would fail
// for ever. An evaluation tries all of them.
func (d *Decider) fitting(v projection.View) ([]runfile.TaskSpec, error) {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil || s.Misfits == 0 || d.cfg.Epochs > 0 {
		return d.cfg.Tasks, err
	}
	var tasks []runfile.TaskSpec
	for _, t := range d.cfg.Tasks {
		_, misfit, err := projection.Get[string](v, misfits+t.Name)
		if err != nil {
			return nil, err
		}
		if !misfit {
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

// countMisfit counts a rollout of a group whose first prompt did not fit into the server's context.
func countMisfit(tx *projection.Tx, rollout string) error {
	key := counted + events.GroupOf(rollout)
	p, ok, err := projection.Get[capacityUse](tx, key)
	if !ok || err != nil {
		return err
	}
	p.Misfits++
	return projection.Put(tx, key, p)
}

// noteMisfit remembers a task none of whose group's rollouts fitted. One server of several with a
// longer context is enough for it to stay.
func noteMisfit(tx *projection.Tx, s *state, task string) error {
	_, before, err := projection.Get[string](tx, misfits+task)
	if err != nil || before {
		return err
	}
	s.Misfits++
	return projection.Put(tx, misfits+task, task)
}

// forgetMisfits draws all tasks again: an operator may have given the server a longer context.
func forgetMisfits(tx *projection.Tx, s *state) error {
	s.Misfits = 0
	for task, err := range projection.Scan[string](tx, misfits) {
		if err != nil {
			return err
		}
		if err := tx.Delete(misfits + task); err != nil {
			return err
		}
	}
	return nil
}
