package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
)

// verification is what `rondo replay --verify` found.
type verification struct {
	Run         string               `json:"run"`
	Events      uint64               `json:"events"`
	Checked     map[string]int       `json:"checked"` // decided facts by decider, and the scorer's rewards
	Differences int                  `json:"differences"`
	Details     []runtime.Difference `json:"details"`
}

// maxDetails bounds the differences that are listed; all are counted.
const maxDetails = 100

func replayVerify(cmd *cobra.Command, g *global, p *plane, run string) error {
	show := newProgress(g)
	v, err := verifyRun(cmd.Context(), p, run, func(seq uint64) {
		if seq%1000 == 0 {
			show.show("sequence %d", seq)
		}
		if seq%100_000 == 0 {
			show.line("sequence %d", seq)
		}
	})
	if err != nil {
		return err
	}
	show.line("%d events read", v.Events)
	if g.json {
		err = printJSON(cmd.OutOrStdout(), v)
	} else {
		err = printVerification(cmd.OutOrStdout(), v)
	}
	if err == nil && v.Differences > 0 {
		err = &exitError{found, fmt.Errorf("replay of %s: %d differences", run, v.Differences)}
	}
	return err
}

func printVerification(w io.Writer, v verification) error {
	for _, name := range sortedKeys(v.Checked) {
		fmt.Fprintf(w, "%s: %d facts recomputed\n", name, v.Checked[name])
	}
	for _, d := range v.Details {
		fmt.Fprintf(w, "%s at sequence %d: %s was %s, comes out as %s\n", d.Event, d.Sequence, d.Field, d.Recorded, d.Recomputed)
	}
	if more := v.Differences - len(v.Details); more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
	_, err := fmt.Fprintf(w, "%d differences\n", v.Differences)
	return err
}

// verifyRun makes every decision of a run again, in one read of its log.
func verifyRun(ctx context.Context, p *plane, run string, progress func(seq uint64)) (verification, error) {
	v := verification{Run: run, Details: []runtime.Difference{}}
	cfg, err := p.log.RecordedConfig(ctx, run)
	if err != nil {
		return v, err
	}
	samplers, err := querysampler.Deciders(run, cfg)
	if err != nil {
		return v, err
	}
	calculators, err := advantagecalculator.Deciders(run, cfg)
	if err != nil {
		return v, err
	}
	report := func(d runtime.Difference) {
		if v.Differences++; v.Differences <= maxDetails {
			v.Details = append(v.Details, d)
		}
	}
	again := &runtime.Verification{
		Log: p.log, Run: run, Report: report, Progress: progress,
		Deciders: map[string]map[string]runtime.Decider{
			events.QuerySampler: samplers, events.AdvantageCalculator: calculators,
			events.TrainerFeeder: trainerfeeder.Deciders(run, cfg, storage.Unwritten{Store: p.store}), // a batch that comes out otherwise is named, not stored
		},
	}
	rewards, scored := scorer.RewardDifferences(cfg), 0
	again.Each = func(e events.Event) error {
		v.Events++
		if e.Type == events.RolloutScoredType && runtime.OriginalSource(e) == events.Scorer {
			scored++
		}
		found, err := rewards(e)
		for _, d := range found {
			report(d)
		}
		return err
	}
	if v.Checked, err = again.Verify(ctx); err != nil {
		return v, fmt.Errorf("verify run %s: %w", run, err)
	}
	v.Checked[events.Scorer] = scored
	return v, nil
}
