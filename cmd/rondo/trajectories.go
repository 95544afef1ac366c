package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/ledger"
	"github.com/rondo-rl/rondo/storage"
)

func newTrajectories(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "trajectories", Short: "List, show and export recorded rollouts"}
	cmd.AddCommand(newTrajectoriesList(g), newTrajectoriesShow(g), newTrajectoriesExport(g))
	return cmd
}

// trajectoryLine is one rollout as `trajectories list` prints it.
type trajectoryLine struct {
	Rollout    string         `json:"rollout"`
	Task       string         `json:"task"`
	Outcome    ledger.Outcome `json:"outcome"` // for the first feed
	Reward     *float64       `json:"reward,omitempty"`
	Turns      int            `json:"turns"`
	Tokens     int            `json:"tokens"`
	StopReason string         `json:"stop_reason"`
	File       storage.Ref    `json:"file"`

	run         string
	invalidated bool
	components  map[string]float64 // of the reward
	advantage   float64            // 0 until the group is complete
	policy      string             // the name of the weights
	temperature float64
}

// finishedRollouts reads the episodes of a run that have a trajectory file, by rollout.
func finishedRollouts(ctx context.Context, p *plane, run string) ([]trajectoryLine, error) {
	if err := p.mustRun(ctx, run); err != nil {
		return nil, err
	}
	l := ledger.New(run)
	var lines []trajectoryLine
	components, advantages := map[string]map[string]float64{}, map[string]float64{}
	for e, err := range p.log.All(ctx, run, 1) {
		if err != nil {
			return nil, err
		}
		if err := l.Apply(e); err != nil {
			return nil, err
		}
		switch e.Type {
		case events.RolloutFinishedType:
			f, err := events.Data[events.RolloutFinished](e)
			if err != nil {
				return nil, err
			}
			lines = append(lines, trajectoryLine{Rollout: e.Entity, Task: f.Task, Turns: f.Turns, Tokens: f.Tokens, StopReason: f.StopReason, File: f.Trajectory, run: run})
		case events.RolloutScoredType:
			scored, err := events.Data[events.RolloutScored](e)
			if err != nil {
				return nil, err
			}
			components[e.Entity] = scored.Components
		case events.GroupCompletedType:
			completed, err := events.Data[events.GroupCompleted](e)
			if err != nil {
				return nil, err
			}
			for _, m := range completed.Members {
				advantages[m.Rollout] = m.Advantage
			}
		}
	}
	for i := range lines {
		line := &lines[i]
		line.Outcome = l.Outcome(l.FirstFeed(), line.Rollout)
		if r, ok := l.Find(line.Rollout); ok && r.Scored {
			line.Reward, line.invalidated = &r.Reward, r.Invalidated
			line.components, line.advantage = components[line.Rollout], advantages[line.Rollout]
		}
		line.policy, line.temperature = l.Config.Policy, l.Config.Sampling.Temperature
	}
	slices.SortFunc(lines, func(a, b trajectoryLine) int { return strings.Compare(a.Rollout, b.Rollout) })
	return lines, nil
}

func newTrajectoriesList(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "list RUN", Short: "List the rollouts that have a trajectory file", Example: "  rondo trajectories list demo-1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			lines, err := finishedRollouts(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), lines)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ROLLOUT\tTASK\tOUTCOME\tREWARD\tTURNS\tTOKENS\tSTOP\tFILE")
			for _, t := range lines {
				reward := "-"
				if t.Reward != nil {
					reward = fmt.Sprintf("%.3g", *t.Reward)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", t.Rollout, line(t.Task, 60), t.Outcome, reward, t.Turns, t.Tokens, line(t.StopReason, 40), t.File.Key)
			}
			return w.Flush()
		},
	}
}
