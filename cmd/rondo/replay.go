package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

// verification is what `rondo replay --verify` found.
type verification struct {
	Run         string               `json:"run"`
	Checked     map[string]int       `json:"checked"` // decided facts by decider
	Differences int                  `json:"differences"`
	Details     []runtime.Difference `json:"details"`
}

// maxDetails bounds the differences that are listed; all are counted.
const maxDetails = 100

func newReplay(g *global) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "replay RUN --verify",
		Short: "Make every decision of a run again and compare",
		Long: `Replay --verify folds the run's log from its beginning, makes every decision (groups opened, rollouts started and
ended, advantages, batches with their files, drops) again as of the sequence and with the clock that the fact
records, and compares it byte for byte. It uses no local state. It exits with 2 when something comes out differently.`,
		Example: "  rondo replay demo-1 --verify --json", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !verify {
				return errors.New("say what to do: --verify makes every decision again and compares")
			}
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			if err := p.mustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			v, err := verifyRun(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			if g.json {
				err = printJSON(cmd.OutOrStdout(), v)
			} else {
				for _, name := range slices.Sorted(maps.Keys(v.Checked)) {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %d decided facts recomputed\n", name, v.Checked[name])
				}
				for _, d := range v.Details {
					fmt.Fprintf(cmd.OutOrStdout(), "%s at sequence %d: %s was %s, comes out as %s\n", d.Event, d.Sequence, d.Field, d.Recorded, d.Recomputed)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%d differences\n", v.Differences)
			}
			if err == nil && v.Differences > 0 {
				err = &exitError{found, fmt.Errorf("replay of %s: %d differences", args[0], v.Differences)}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "recompute every decided fact and compare")
	return cmd
}

func verifyRun(ctx context.Context, p *plane, run string) (verification, error) {
	v := verification{Run: run, Checked: map[string]int{}, Details: []runtime.Difference{}}
	cfg, err := p.log.Config(ctx, run)
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
	for service, deciders := range map[string]map[string]runtime.Decider{
		events.QuerySampler: samplers, events.AdvantageCalculator: calculators,
		events.TrainerFeeder: trainerfeeder.Deciders(run, cfg, p.store),
	} {
		for instance, d := range deciders {
			checked, err := runtime.Verify(ctx, p.log, run, service, instance, d, func(d runtime.Difference) {
				if v.Differences++; v.Differences <= maxDetails {
					v.Details = append(v.Details, d)
				}
			})
			if err != nil {
				return v, fmt.Errorf("verify %s of run %s: %w", service, run, err)
			}
			name := service
			if instance != "" {
				name += "/" + instance
			}
			v.Checked[name] = checked
		}
	}
	return v, nil
}
