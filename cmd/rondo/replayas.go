package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

// replayOptions are the flags of `rondo replay`.
type replayOptions struct {
	settings // of the sandboxes
	verify   bool
	tools    bool
	rollouts []string
	slots    int
	as       string
	set      []string
	from     string
	tasks    string
	rerun    bool // verifiers
	to       uint64
	recorded bool
	given    []string // flags of the command line
}

// Stages from which a replay decides again.
const (
	fromScores     = "scores"
	fromAdvantages = "advantages"
	fromBatches    = "batches"
)

// replayed is what `rondo replay --as` answers.
type replayed struct {
	Run string `json:"run"`
	Of  string `json:"replays"`
	runtime.RerunResult
	Seconds float64 `json:"seconds"`
}

func replayAs(cmd *cobra.Command, g *global, p *plane, run string, o replayOptions) error {
	if !events.ValidRun(o.as) {
		return fmt.Errorf("--as %q: use letters, digits, - and _, at most 64", o.as)
	}
	ctx, began := cmd.Context(), time.Now()
	cfg, err := p.log.RecordedConfig(ctx, run)
	if err != nil {
		return err
	}
	if cfg, err = changed(cfg, o.set); err != nil {
		return err
	}
	show := newProgress(g)
	if o.from == fromScores && o.tasks != "" {
		if cfg, err = withTests(ctx, p, show, cfg, o.tasks); err != nil {
			return err
		}
	}
	deciders, err := redeciders(p, o, cfg)
	if err != nil {
		return err
	}
	outcome, stop, err := o.outcomes(ctx, p, run, cfg)
	if err != nil {
		return err
	}
	defer stop()
	r := runtime.Rerun{Log: p.log, From: run, To: o.as, Config: cfg, Deciders: deciders, Until: o.to, Outcome: outcome,
		Progress: func(seq uint64) {
			show.show("sequence %d", seq)
			if seq%1000 == 0 {
				show.line("sequence %d", seq)
			}
		}}
	if o.recorded {
		r.Wait = recordedTime()
	}
	result, err := r.Run(ctx)
	show.clear()
	if err != nil {
		return fmt.Errorf("replay %s as %s: %w", run, o.as, err)
	}
	return printReplayed(cmd.OutOrStdout(), g, replayed{Run: o.as, Of: run, RerunResult: result, Seconds: time.Since(began).Seconds()})
}

func redeciders(p *plane, o replayOptions, cfg events.RunConfig) (map[string]map[string]runtime.Decider, error) {
	deciders := map[string]map[string]runtime.Decider{events.TrainerFeeder: trainerfeeder.Deciders(o.as, cfg, p.store)}
	switch cmp.Or(o.from, fromAdvantages) {
	case fromBatches:
		return deciders, nil
	case fromAdvantages, fromScores:
		calculators, err := advantagecalculator.Deciders(o.as, cfg)
		deciders[events.AdvantageCalculator] = calculators
		return deciders, err
	}
	return nil, fmt.Errorf("--from %q: must be %s, %s or %s", o.from, fromScores, fromAdvantages, fromBatches)
}

// outcomes says how rollouts are scored again; nil where their recorded outcomes are copied. stop is to be called in any case.
func (o replayOptions) outcomes(ctx context.Context, p *plane, run string, cfg events.RunConfig) (again outcomeAgain, stop func(), err error) {
	stop = func() {}
	switch {
	case o.from != fromScores:
		return nil, stop, nil
	case !o.rerun && o.tasks == "":
		return recomposed(o.as, cfg.Scorer), stop, checkComponents(ctx, p.log, run, cfg.Scorer)
	}
	if err := checkSandbox(ctx, []string{events.Scorer}, o.settings); err != nil {
		return nil, stop, err
	}
	again, stop = verifiedAgain(ctx, p, run, o, cfg)
	return again, stop, nil
}

// recordedTime waits between events as long as it was between them when they were recorded.
func recordedTime() func(context.Context, time.Time) error {
	var first, began time.Time
	return func(ctx context.Context, at time.Time) error {
		if first.IsZero() {
			first, began = at, time.Now()
		}
		timer := time.NewTimer(time.Until(began.Add(at.Sub(first))))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func printReplayed(w io.Writer, g *global, r replayed) error {
	if g.json {
		return printJSON(w, r)
	}
	fmt.Fprintf(w, "run %s replays %s: %d events copied in %.1f s; decided again:\n", r.Run, r.Of, r.Copied, r.Seconds)
	for _, t := range slices.Sorted(maps.Keys(r.Decided)) {
		fmt.Fprintf(w, "  %d %s\n", r.Decided[t], t)
	}
	fmt.Fprintf(w, "\n  what differs   rondo diff %s %s\n  the books      rondo audit %s\n", r.Of, r.Run, r.Run)
	return nil
}
