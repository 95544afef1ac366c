package querysampler

import (
	"math/rand/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// drawer makes the function that says which task is drawn n-th, counted from 1.
func (d *Decider) drawer(v projection.View) (func(n int64) string, error) {
	if d.cfg.Curriculum == nil || len(d.cfg.Tasks) == 0 {
		return d.task, nil
	}
	weights, total := make([]float64, len(d.cfg.Tasks)), 0.0
	for i, t := range d.cfg.Tasks {
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
				return d.cfg.Tasks[i].Name
			}
		}
		return d.cfg.Tasks[len(weights)-1].Name // by rounding
	}, nil
}

// weight is what events.Curriculum says of a task with pass rate p.
func weight(c runfile.Curriculum, p float64, tried bool) float64 {
	if !tried {
		return 1
	}
	floor := orDefault(c.Floor, 0.1)
	return floor + float64((1-floor)*4*p*(1-p))
}

// passRate moves a task's pass rate by that of a completed group. ok is false for a group that says nothing.
func passRate(c runfile.Curriculum, before float64, tried bool, members []events.Member) (after float64, ok bool) {
	scored, passed := 0, 0
	for _, m := range members {
		if m.Failed {
			continue
		}
		scored++
		if m.Reward >= orDefault(c.PassAt, 1) {
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
	decay := orDefault(c.Decay, 0.8)
	return float64(decay*before) + float64((1-decay)*rate), true
}

func orDefault(v, otherwise float64) float64 {
	if v == 0 {
		return otherwise
	}
	return v
}

// task draws uniformly without replacement: each epoch is a fresh permutation of the tasks.
func (d *Decider) task(n int64) string {
	count := int64(len(d.cfg.Tasks))
	epoch, at := (n-1)/count, (n-1)%count
	rng := rand.New(rand.NewPCG(uint64(d.cfg.Seed), uint64(epoch)))
	return d.cfg.Tasks[rng.Perm(int(count))[at]].Name
}
