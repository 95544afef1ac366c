package advantagecalculator

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// begin takes along the baselines of the run that this one continues.
func (d *Decider) begin(tx *projection.Tx, e events.Event) error {
	if !d.estimate.Remembers() {
		return nil
	}
	opened, err := events.Data[events.RunOpened](e)
	if err != nil || opened.Continues == nil {
		return err
	}
	for name, task := range opened.Continues.Tasks {
		for role, baseline := range task.Baselines {
			if err := projection.Put(tx, ofRoles+role+"/"+name, baseline); err != nil {
				return err
			}
		}
		if task.Baseline == nil {
			continue
		}
		if err := projection.Put(tx, baselines+name, *task.Baseline); err != nil {
			return err
		}
	}
	return nil
}

// Learnt adds the baselines of the run's tasks to what another run takes along. Those of forks
// stay: their origins are rollouts of this run.
func (d *Decider) Learnt(v projection.View, to *events.Continued) error {
	for _, t := range d.cfg.Tasks {
		task := to.Tasks[t.Name]
		baseline, ok, err := projection.Get[float64](v, baselines+t.Name)
		if err != nil {
			return err
		}
		if ok {
			task.Baseline = &baseline
		}
		if err := d.learntByRoles(v, t.Name, &task); err != nil {
			return err
		}
		if ok || len(task.Baselines) > 0 {
			to.Tasks[t.Name] = task
		}
	}
	return nil
}

func (d *Decider) learntByRoles(v projection.View, name string, task *events.TaskLearnt) error {
	for _, role := range events.RolesIn(d.cfg, "") {
		baseline, ok, err := projection.Get[float64](v, ofRoles+role+"/"+name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if task.Baselines == nil {
			task.Baselines = map[string]float64{}
		}
		task.Baselines[role] = baseline
	}
	return nil
}
