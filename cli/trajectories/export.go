package trajectories

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/export"
)

// parquetLine makes a Parquet table of the messages in exported Arrow files, with pyarrow.
// schemas/arrow.md has the same line, which a test in storage runs.
const parquetLine = `python3 -c 'import pyarrow.dataset as d; d.write_dataset(d.dataset("trajectories", format="ipc"), "messages", format="parquet", preserve_order=True)'`

func newTrajectoriesExport(g *app.Global) *cobra.Command {
	x := &export.Exporter{}
	var format string
	var best bool
	least := math.Inf(-1)
	cmd := &cobra.Command{
		Use:   "export RUN... --out PATH",
		Short: "Copy trajectories out of the store: Arrow, ATIF, conversations, preference pairs",
		Args:  cobra.MinimumNArgs(1),
		Long: `Export writes the scored rollouts of one run or several, without the invalidated ones.

  arrow  the files as they are, into the directory --out
  atif   a JSON document for each rollout (ATIF v1.8), with tool calls, answers, token ids and log-probabilities, into the directory --out
  chat   {"messages": […], "rollout", "group", "task", "reward"} on each line of the file --out, as OpenAI and TRL write conversations
  pairs  {"prompt": […], "chosen": […], "rejected": […], …} on each line: of each group whose rewards differ, the best and the worst

A harness may go back in a conversation, try twice or rewrite its history. Such a rollout has several conversations: chat writes a line for each,
with its last "turn" and the number of "branches", atif a document for each, and pairs leaves it out. chat and pairs know only conversations
that the run does not mask.

--min-reward and --best select what is written: chat with either is the data of rejection sampling. In a directory, the files of
several runs lie in a folder for each. Of Arrow files pyarrow makes one Parquet table, a row for each message:

  ` + parquetLine,
		Example: `  rondo trajectories export demo-1 --out ./trajectories
  rondo trajectories export demo-1 --format atif --out ./atif
  rondo trajectories export demo-1 --format chat --min-reward 1 --best --out sft.jsonl
  rondo trajectories export demo-1 --format pairs --out pairs.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !export.IsForm(format):
				return fmt.Errorf("--format %q: must be %s, %s, %s or %s", format, export.Arrow, export.ATIF,
					export.Chat, export.Pairs)
			case best && format == export.Pairs:
				return errors.New("--best leaves one rollout of each group, and pairs need two")
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			runs := slices.Compact(slices.Sorted(slices.Values(args)))
			for _, run := range runs {
				if err := p.MustRun(cmd.Context(), run); err != nil {
					return err
				}
			}
			selected, err := export.Select(cmd.Context(), p.Log.Reader, runs,
				export.Selection{MinReward: least, Best: best})
			if err != nil {
				return err
			}
			show := app.NewProgress(g)
			x.Store, x.ByRun, x.Progress = p.Store, len(runs) > 1,
				func(read int) { show.Show("%d rollouts read", read) }
			n, err := x.Write(cmd.Context(), format, selected)
			show.Clear()
			if err != nil {
				return fmt.Errorf("export to %s: %w", x.Out, err)
			}
			if x.Branching > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"%d pairs left out: a rollout of theirs has several conversations that are trained on, or none\n",
					x.Branching)
			}
			return app.Tell(cmd, g, map[string]any{"format": format, "written": n, "out": x.Out},
				"%d written to %s\n", n, x.Out)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&x.Out, "out", "", "directory of the files, or the file of the rows or lines")
	flags.StringVar(&format, "format", export.Arrow, "arrow, atif, chat or pairs")
	flags.Float64Var(&least, "min-reward", least, "only rollouts with at least this reward")
	flags.BoolVar(&best, "best", false, "only the best rollout of each group, the first of equal ones")
	cmd.MarkFlagRequired("out")
	return cmd
}
