package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Forms in which trajectories are exported.
const (
	formatArrow   = "arrow"   // the files as they are
	formatATIF    = "atif"    // a document for each rollout in the Agent Trajectory Interchange Format
	formatParquet = "parquet" // one table of messages, or of training samples
	formatChat    = "chat"    // a conversation on each line, for supervised fine-tuning
	formatPairs   = "pairs"   // two conversations of one task on each line, the better one first, for preference training
)

// exporter writes rollouts somewhere.
type exporter struct {
	p    *plane
	show *progress
	out  string
	// runs are those whose rollouts are written.
	runs []string
	// samples makes the rows of a Parquet file training samples.
	samples bool
	done    int
}

func newTrajectoriesExport(g *global) *cobra.Command {
	x := &exporter{}
	var format, rows string
	var best bool
	least := math.Inf(-1)
	cmd := &cobra.Command{
		Use: "export RUN... --out PATH", Short: "Copy trajectories out of the store: Arrow, ATIF, Parquet, conversations, preference pairs", Args: cobra.MinimumNArgs(1),
		Long: `Export writes the scored rollouts of one run or several, without the invalidated ones.

  arrow    the files as they are, into the directory --out
  atif     a JSON document for each rollout (ATIF v1.7), with tool calls, answers, token ids and log-probabilities, into the directory --out
  parquet  one table: a row for each message, or with --rows samples for each training sample, with the columns of the Arrow files.
           Where --out is a directory, each run has a file of its own in it
  chat     {"messages": […], "rollout", "group", "task", "reward"} on each line of the file --out, as OpenAI and TRL write conversations
  pairs    {"prompt": […], "chosen": […], "rejected": […], …} on each line: of each group whose rewards differ, the best and the worst

--min-reward and --best select what is written: chat with either is the data of rejection sampling. In a directory, the files of
several runs lie in a folder for each.`,
		Example: `  rondo trajectories export demo-1 --out ./trajectories
  rondo trajectories export demo-1 --format atif --out ./atif
  rondo trajectories export demo-1 demo-2 --format parquet --out messages.parquet
  rondo trajectories export demo-1 --format chat --min-reward 1 --best --out sft.jsonl
  rondo trajectories export demo-1 --format pairs --out pairs.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := map[string]func(context.Context, *exporter, []trajectoryLine) (int, error){
				formatArrow: exportFiles, formatATIF: exportATIF, formatParquet: exportParquet, formatChat: exportChat, formatPairs: exportPairs}[format]
			switch {
			case !ok:
				return fmt.Errorf("--format %q: must be %s, %s, %s, %s or %s", format, formatArrow, formatATIF, formatParquet, formatChat, formatPairs)
			case rows != rowsMessages && rows != rowsSamples:
				return fmt.Errorf("--rows %q: must be %s or %s", rows, rowsMessages, rowsSamples)
			case best && format == formatPairs:
				return errors.New("--best leaves one rollout of each group, and pairs need two")
			}
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			x.p, x.show, x.samples = p, newProgress(g), rows == rowsSamples
			lines, err := x.find(cmd.Context(), args, least, best)
			if err != nil {
				return err
			}
			n, err := write(cmd.Context(), x, lines)
			x.show.clear()
			if err != nil {
				return fmt.Errorf("export to %s: %w", x.out, err)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"format": format, "written": n, "out": x.out})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d written to %s\n", n, x.out)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&x.out, "out", "", "directory of the files, or the file of the rows or lines")
	flags.StringVar(&format, "format", formatArrow, "arrow, atif, parquet, chat or pairs")
	flags.StringVar(&rows, "rows", rowsMessages, "rows of a Parquet file: messages or samples")
	flags.Float64Var(&least, "min-reward", least, "only rollouts with at least this reward")
	flags.BoolVar(&best, "best", false, "only the best rollout of each group, the first of equal ones")
	cmd.MarkFlagRequired("out")
	return cmd
}

// find lists the rollouts that are to be written, by run and rollout.
func (x *exporter) find(ctx context.Context, runs []string, least float64, best bool) (all []trajectoryLine, err error) {
	x.runs = slices.Compact(slices.Sorted(slices.Values(runs)))
	for _, run := range x.runs {
		lines, err := finishedRollouts(ctx, x.p, run)
		if err != nil {
			return nil, err
		}
		lines = slices.DeleteFunc(lines, func(t trajectoryLine) bool { return t.Reward == nil || t.invalidated || *t.Reward < least })
		if best {
			lines = bestOfGroups(lines)
		}
		all = append(all, lines...)
	}
	return all, nil
}

// bestOfGroups keeps of each group the rollout with the highest reward, the first of equal ones.
func bestOfGroups(lines []trajectoryLine) []trajectoryLine {
	best := map[string]trajectoryLine{}
	for _, t := range lines {
		group := events.GroupOf(t.Rollout)
		if b, ok := best[group]; !ok || *t.Reward > *b.Reward {
			best[group] = t
		}
	}
	return slices.DeleteFunc(lines, func(t trajectoryLine) bool { return best[events.GroupOf(t.Rollout)].Rollout != t.Rollout })
}

// fetch reads the trajectory file of a rollout.
func (x *exporter) fetch(ctx context.Context, t trajectoryLine) ([]byte, error) {
	data, err := storage.GetBlob(ctx, x.p.store, t.File)
	if err != nil {
		return nil, fmt.Errorf("rollout %s of run %s: %w", t.Rollout, t.run, err)
	}
	x.done++
	x.show.show("%d rollouts read", x.done)
	return data, nil
}

func (x *exporter) trajectory(ctx context.Context, t trajectoryLine) (*storage.Trajectory, error) {
	data, err := x.fetch(ctx, t)
	if err != nil {
		return nil, err
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		return nil, fmt.Errorf("rollout %s of run %s: %w", t.Rollout, t.run, err)
	}
	return trajectory, nil
}

// file is where a rollout's file goes.
func (x *exporter) file(t trajectoryLine, extension string) string {
	if len(x.runs) == 1 {
		return filepath.Join(x.out, t.Rollout+extension)
	}
	return filepath.Join(x.out, t.run, t.Rollout+extension)
}

func exportFiles(ctx context.Context, x *exporter, lines []trajectoryLine) (int, error) {
	if err := os.MkdirAll(x.out, 0o755); err != nil {
		return 0, err
	}
	for i, t := range lines {
		data, err := x.fetch(ctx, t)
		if err != nil {
			return i, err
		}
		if err := writeFile(x.file(t, ".arrow"), data); err != nil {
			return i, err
		}
	}
	return len(lines), nil
}

func writeFile(path string, data []byte) error {
	return wholeFile(path, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// wholeFile writes a file with the folders that it lies in. It is there whole or not at all.
func wholeFile(path string, fill func(w io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	if err = errors.Join(fill(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
