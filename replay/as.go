// Package replay makes the decisions, tool calls and scores of a recorded run again: to compare
// them, or to make a run of other ones.
package replay

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

// Stages from which a replay decides again.
const (
	FromScores     = "scores"
	FromAdvantages = "advantages"
	FromBatches    = "batches"
)

// Sandboxes say how tools and verifiers run again.
type Sandboxes struct {
	// Slots is how many rollouts are run at once.
	Slots int
	tasks.Machine
}

func (o Sandboxes) scorer() scorer.Options {
	return scorer.Options{Machine: o.Machine}
}

// Options say what a new run makes of a recorded one.
type Options struct {
	// Run is the recorded run, As the new one.
	Run, As string
	// Config is the new run's configuration.
	Config runfile.RunConfig
	// From is the first stage that is made again; "" is FromAdvantages.
	From string
	// Verifiers runs the verifiers again where From is FromScores, instead of
	// composing what they reported.
	Verifiers bool
	Sandboxes
	// Until is the last sequence that is copied; 0 copies all.
	Until uint64
	// Progress, if set, receives the sequence of each recorded event.
	Progress func(seq uint64)
}

// As makes a new run of a recorded one: what happened is copied, and the stages from a certain
// one on are decided again.
func As(ctx context.Context, log *eventlog.Log, o Options) (pipeline.RerunResult, error) {
	deciders, err := redeciders(log.Store(), o, o.Config)
	if err != nil {
		return pipeline.RerunResult{}, err
	}
	outcome, stop, err := o.outcomes(ctx, log.Reader, o.Config)
	if err != nil {
		return pipeline.RerunResult{}, err
	}
	defer stop()
	r := pipeline.Rerun{Log: log, From: o.Run, To: o.As, Config: o.Config, Deciders: deciders, Until: o.Until,
		Outcome: outcome, Progress: o.Progress}
	result, err := r.Run(ctx)
	if err != nil {
		err = fmt.Errorf("replay %s as %s: %w", o.Run, o.As, err)
	}
	return result, err
}

func redeciders(store storage.Store, o Options, cfg runfile.RunConfig) (map[string]map[string]pipeline.Decider, error) {
	deciders := map[string]map[string]pipeline.Decider{topology.TrainerFeeder: trainerfeeder.Deciders(o.As, cfg, store)}
	switch cmp.Or(o.From, FromAdvantages) {
	case FromBatches:
		return deciders, nil
	case FromAdvantages, FromScores:
		calculators, err := advantagecalculator.Deciders(o.As, cfg)
		deciders[topology.AdvantageCalculator] = calculators
		return deciders, err
	}
	return nil, fmt.Errorf("--from %q: must be %s, %s or %s", o.From, FromScores, FromAdvantages, FromBatches)
}

// outcomes says how rollouts are scored again; nil where their recorded outcomes are copied. stop
// is to be called in any case.
func (o Options) outcomes(ctx context.Context, log eventlog.Reader,
	cfg runfile.RunConfig) (again outcomeAgain, stop func(), err error) {
	stop = func() {}
	switch {
	case o.From != FromScores:
		return nil, stop, nil
	case !o.Verifiers:
		return recomposed(o.As, cfg.Scorer), stop, CheckComponents(ctx, log, o.Run, cfg.Scorer)
	}
	again, stop = verifiedAgain(ctx, log, o.Run, o.As, cfg, o.Sandboxes)
	return again, stop, nil
}
