package replay

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Learnt is what a run has learnt by an event, 0 for its last one, as far as it holds for a new run
// with the configuration next.
func Learnt(ctx context.Context, log eventlog.Reader, run string, until uint64,
	next runfile.RunConfig) (*events.Continued, error) {
	cfg, err := log.RecordedConfig(ctx, run)
	if err != nil {
		return nil, err
	}
	calculator, err := advantagecalculator.NewDecider(run, cfg)
	if err != nil {
		return nil, err
	}
	sampler, steps := querysampler.NewDecider(run, cfg), lastSteps{}
	learnt := &events.Continued{Run: run, Tasks: map[string]events.TaskLearnt{}}
	err = pipeline.FoldRun(ctx, log, run, until, []pipeline.Decider{sampler, calculator, steps},
		func(last uint64, states []projection.View) error {
			learnt.Until, learnt.Steps = last, steps
			if err := sampler.Learnt(states[0], learnt); err != nil {
				return err
			}
			return calculator.Learnt(states[1], learnt)
		})
	if err != nil {
		return nil, fmt.Errorf("what run %s has learnt: %w", run, err)
	}
	keepWhatHolds(learnt, cfg, next)
	return learnt, nil
}

// keepWhatHolds leaves out what was learnt of other tasks, another server, or by other rules.
func keepWhatHolds(learnt *events.Continued, cfg, next runfile.RunConfig) {
	if next.Policy != cfg.Policy {
		learnt.PolicyVersion = 0
	}
	digests := map[string]string{}
	for _, t := range next.Tasks {
		digests[t.Name] = t.Digest
	}
	sameRates := cfg.Curriculum != nil && next.Curriculum != nil && cfg.Curriculum.Passes() == next.Curriculum.Passes()
	sameBaselines := sameAdvantage(cfg.Advantage, next.Advantage) && reflect.DeepEqual(cfg.Shaping, next.Shaping)
	sameServers := reflect.DeepEqual(cfg.Servers(), next.Servers())
	for _, t := range cfg.Tasks {
		task := learnt.Tasks[t.Name]
		if !sameRates {
			task.PassRate = nil
		}
		if !sameBaselines {
			task.Baseline = nil
		}
		task.Misfit = task.Misfit && sameServers
		if digests[t.Name] != t.Digest || task.Nothing() {
			delete(learnt.Tasks, t.Name)
			continue
		}
		learnt.Tasks[t.Name] = task
	}
}

// sameAdvantage reports whether two runs compare rewards alike. An estimator that is given no
// parameters is given none.
func sameAdvantage(a, b runfile.Advantage) bool {
	if len(a.Params) == 0 && len(b.Params) == 0 {
		a.Params, b.Params = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// lastSteps folds the last step of each feed.
type lastSteps map[string]int64

// Apply implements pipeline.Decider.
func (s lastSteps) Apply(_ *projection.Tx, e events.Event) error {
	if e.Type != events.BatchReadyType {
		return nil
	}
	ready, err := events.Data[events.BatchReady](e)
	s[e.Entity] = ready.Step
	return err
}

// Decide implements pipeline.Decider.
func (s lastSteps) Decide(projection.View, uint64, time.Time) ([]events.Event, time.Time, error) {
	return nil, time.Time{}, nil
}
