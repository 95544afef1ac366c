package querysampler

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// begin begins at the policy's version, and takes along what the run that this
// one continues has learnt.
func (d *Decider) begin(tx *projection.Tx, s *state, e events.Event) error {
	s.Opened = true
	opened, err := events.Data[events.RunOpened](e)
	s.PolicyVersion = opened.BeginsAt()
	if err != nil || opened.Continues == nil {
		return err
	}
	before := opened.Continues
	s.GroupsBefore, s.DrawnBefore = before.Groups, before.Drawn
	s.MeanTokens, s.Measured = before.MeanTokens, before.Measured
	for name, task := range before.Tasks {
		if !d.known[name] {
			continue
		}
		if task.PassRate != nil && d.cfg.Curriculum != nil {
			if err := projection.Put(tx, passRates+name, *task.PassRate); err != nil {
				return err
			}
		}
		if task.Misfit {
			if err := noteMisfit(tx, s, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Learnt adds what this run has learnt to what another one takes along. What the breaker has seen
// is no part of it: that run begins anew.
func (d *Decider) Learnt(v projection.View, to *events.Continued) error {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil {
		return err
	}
	to.PolicyVersion, to.Groups, to.Drawn = s.PolicyVersion, s.GroupsBefore+s.Groups, s.DrawnBefore+s.Drawn
	to.MeanTokens, to.Measured = s.MeanTokens, s.Measured
	for _, t := range d.cfg.Tasks {
		task := to.Tasks[t.Name]
		rate, tried, err := projection.Get[float64](v, passRates+t.Name)
		if err != nil {
			return err
		}
		if tried {
			task.PassRate = &rate
		}
		if _, task.Misfit, err = projection.Get[string](v, misfits+t.Name); err != nil {
			return err
		}
		if !task.Nothing() {
			to.Tasks[t.Name] = task
		}
	}
	return nil
}
