package power

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/mill"
)

// effect is a service that answers facts of one type, each with one fact behind
// it on the rollout's chain.
func (p *plane) effect(name string, of events.Type, answer func(context.Context, events.Event) (events.Type, any,
	error)) func(context.Context, pipeline.Env) error {
	handle := func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		last, err := m.Log.Last(ctx, m.Event.Run, of.Kind(), m.Event.Entity)
		if err != nil || last.Type != of {
			return nil, err // another one was faster
		}
		typ, data, err := answer(ctx, m.Event)
		if err != nil {
			return nil, err
		}
		fact, err := events.New(m.Event.Run, typ, m.Event.Entity, "0", data)
		fact.Prev = last.Seq
		return []events.Event{fact}, err
	}
	return func(ctx context.Context, env pipeline.Env) error {
		return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: name, Slots: 4, Handle: handle})
	}
}

// generate plays the generator, and the trajectory's file is what a fact names.
func (p *plane) generate(ctx context.Context, e events.Event) (events.Type, any, error) {
	return mill.Generate(ctx, p.log.Store(), e)
}

// score plays the scorer.
func (p *plane) score(_ context.Context, e events.Event) (events.Type, any, error) {
	finished, err := events.Data[events.RolloutFinished](e)
	return events.RolloutScoredType, events.RolloutScored{Reward: float64(e.Seq % 2),
		Trajectory: finished.Trajectory}, err
}

// patience bounds how long a plane may take to settle on a busy machine.
const patience = 2 * time.Minute

// settle waits until every rollout that was started in the last runs has its reward, and every
// group its advantages: no consumer and no decider misses what a cut took from it.
func (p *plane) settle(ctx context.Context, known []answer) error {
	life, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, run := range lastOpened(known, openRuns) {
		for {
			waiting, err := p.waiting(ctx, run)
			if err != nil {
				return err
			}
			if waiting == "" {
				break
			}
			if !retry.Sleep(life, 200*time.Millisecond) {
				return fmt.Errorf("run %s does not go on after %s: %s", run, patience, waiting)
			}
		}
	}
	return nil
}

// waiting says what a run still waits for; "" is nothing.
func (p *plane) waiting(ctx context.Context, run string) (string, error) {
	open, groups := map[string]events.Type{}, 0
	for e, err := range p.log.All(ctx, run, 1) {
		if err != nil {
			return "", err
		}
		switch e.Type {
		case events.GroupOpenedType:
			open[e.Entity] = e.Type
			groups++
		case events.RolloutStartedType, events.RolloutFinishedType:
			open[e.Entity] = e.Type
		case events.RolloutScoredType, events.RolloutFailedType, events.GroupCompletedType:
			delete(open, e.Entity)
		case events.RunClosedType:
			return "", nil
		}
	}
	if groups == 0 {
		return "no group is opened", nil
	}
	for entity, last := range open {
		return fmt.Sprintf("%d rollouts and groups have no end, and of %s the last fact is %s", len(open), entity,
			last), nil
	}
	return "", nil
}

// openRuns is how many of the runs stay open: a plane has more to do with each.
const openRuns = 3

// lastOpened are the names of the last n runs that were answered as open.
func lastOpened(known []answer, n int) []string {
	var runs []string
	for _, a := range known {
		if a.Opens {
			runs = append(runs, a.Run)
		}
	}
	return runs[max(0, len(runs)-n):]
}
