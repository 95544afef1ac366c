package replay

import (
	"context"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
)

// Verification is what the decisions of a run came to when they were made again.
type Verification struct {
	Run         string                `json:"run"`
	Events      uint64                `json:"events"`
	Checked     map[string]int        `json:"checked"` // decided facts by decider, and the scorer's rewards
	Differences int                   `json:"differences"`
	Details     []pipeline.Difference `json:"details"`
}

// maxDetails bounds the differences that are listed; all are counted.
const maxDetails = 100

// Verify makes every decision of a run again, in one read of its log.
// progress receives each sequence.
func Verify(ctx context.Context, log eventlog.Reader, run string, progress func(seq uint64)) (Verification, error) {
	v := Verification{Run: run, Details: []pipeline.Difference{}}
	cfg, err := log.RecordedConfig(ctx, run)
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
	report := func(d pipeline.Difference) {
		if v.Differences++; v.Differences <= maxDetails {
			v.Details = append(v.Details, d)
		}
	}
	again := &pipeline.Verification{
		Log: log, Run: run, Report: report, Progress: progress,
		Deciders: map[string]map[string]pipeline.Decider{
			topology.QuerySampler: samplers, topology.AdvantageCalculator: calculators,
			// a batch that comes out otherwise is named, not stored
			topology.TrainerFeeder: trainerfeeder.Deciders(run, cfg, storage.Unwritten{Store: log.Store()}),
		},
	}
	rewards, scored := scorer.RewardDifferences(cfg), 0
	again.Each = func(e events.Event) error {
		v.Events++
		if e.Type == events.RolloutScoredType && pipeline.OriginalSource(e) == topology.Scorer {
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
	v.Checked[topology.Scorer] = scored
	return v, nil
}
