package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
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
}

// finishedRollouts reads the episodes of a run that have a trajectory file, by rollout.
func finishedRollouts(ctx context.Context, p *plane, run string) ([]trajectoryLine, error) {
	if err := p.mustRun(ctx, run); err != nil {
		return nil, err
	}
	l := ledger.New(run)
	var lines []trajectoryLine
	for e, err := range p.log.All(ctx, run, 1) {
		if err != nil {
			return nil, err
		}
		if err := l.Apply(e); err != nil {
			return nil, err
		}
		if e.Type != events.RolloutFinishedType {
			continue
		}
		f, err := events.Data[events.RolloutFinished](e)
		if err != nil {
			return nil, err
		}
		lines = append(lines, trajectoryLine{Rollout: e.Entity, Task: f.Task, Turns: f.Turns, Tokens: f.Tokens, StopReason: f.StopReason, File: f.Trajectory})
	}
	for i := range lines {
		line := &lines[i]
		line.Outcome = l.Outcome(l.Config.Feeds[0].Name, line.Rollout)
		if r, ok := l.Reward(line.Rollout); ok {
			line.Reward = &r
		}
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
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", t.Rollout, t.Task, t.Outcome, reward, t.Turns, t.Tokens, t.StopReason, t.File.Key)
			}
			return w.Flush()
		},
	}
}

// findTrajectory reads one rollout's file.
func findTrajectory(ctx context.Context, p *plane, run, rollout string) (*storage.Trajectory, error) {
	if err := p.mustRun(ctx, run); err != nil {
		return nil, err
	}
	e, err := p.log.LastOfType(ctx, run, events.RolloutFinishedType, rollout)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, fmt.Errorf("run %s has no finished rollout %s; `rondo trajectories list %s` lists them", run, rollout, run)
	}
	if err != nil {
		return nil, err
	}
	f, err := events.Data[events.RolloutFinished](e)
	if err != nil {
		return nil, err
	}
	data, err := storage.GetBlob(ctx, p.store, f.Trajectory)
	if err != nil {
		return nil, err
	}
	return storage.DecodeTrajectory(data)
}

func newTrajectoriesShow(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "show RUN ROLLOUT", Short: "Show one rollout, message by message", Example: "  rondo trajectories show demo-1 g000003-1", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			t, err := findTrajectory(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), t)
			}
			showTrajectory(cmd.OutOrStdout(), t)
			return nil
		},
	}
}

func showTrajectory(w io.Writer, t *storage.Trajectory) {
	fmt.Fprintf(w, "rollout %s of task %s: %s, policy version %d at dispatch\n", t.Rollout, t.Task, t.StopReason, t.DispatchVersion)
	for _, m := range t.Messages {
		head := m.Role
		if m.Name != "" {
			head += " " + m.Name
		}
		if m.Role == "assistant" {
			head = fmt.Sprintf("%s, turn %d, version %d, %d tokens", head, m.Turn, m.PolicyVersion, len(m.TokenIDs))
		}
		fmt.Fprintf(w, "\n── %s\n", head)
		if m.Content != "" {
			fmt.Fprintln(w, strings.TrimRight(m.Content, "\n"))
		}
		var calls []events.ToolCall
		if m.ToolCalls != "" && json.Unmarshal([]byte(m.ToolCalls), &calls) == nil {
			for _, c := range calls {
				fmt.Fprintf(w, "→ %s %s\n", c.Name, c.Arguments)
			}
		}
	}
}

func newTrajectoriesExport(g *global) *cobra.Command {
	var out, minReward string
	cmd := &cobra.Command{
		Use: "export RUN --out DIR", Short: "Copy trajectory files out of the store",
		Example: "  rondo trajectories export demo-1 --out ./trajectories --min-reward 1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var least float64
			if minReward != "" {
				if _, err := fmt.Sscanf(minReward, "%g", &least); err != nil {
					return fmt.Errorf("--min-reward %q is not a number", minReward)
				}
			}
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			lines, err := finishedRollouts(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			n := 0
			for _, t := range lines {
				if minReward != "" && (t.Reward == nil || *t.Reward < least) {
					continue
				}
				data, err := storage.GetBlob(cmd.Context(), p.store, t.File)
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(out, t.Rollout+".arrow"), data, 0o644); err != nil {
					return err
				}
				n++
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"files": n, "dir": out})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d files in %s\n", n, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory for the files")
	cmd.Flags().StringVar(&minReward, "min-reward", "", "only rollouts with at least this reward")
	cmd.MarkFlagRequired("out")
	return cmd
}
