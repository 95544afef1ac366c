package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/table"
	"github.com/rondo-rl/rondo/cli/app"
)

// rivalsScript is where the script lies in a checkout.
var rivalsScript = filepath.Join("bench", "rivals", "run")

func newBenchTable(g *app.Global) *cobra.Command {
	o := table.Options{}
	cmd := &cobra.Command{
		Use:   "table",
		Short: "All of it in one table: beside raw NATS, raw Arrow, cmp and cp, bubblewrap, ripgrep and the rivals",
		Long: `Table runs the other benchmarks, one after the other, and puts each figure beside that of the same work without Rondo. RATIO says how many
times as fast Rondo is: 1 is as fast.

In a checkout it also runs bench/rivals/run, which carries the same rollouts through Rondo and through the queues that trainers use today, and
kills all processes. It names each rival that cannot run here, and what it lacks.

The whole table takes some half an hour on a quiet machine, and the rivals as long again; --quick takes some minutes, and its figures
scatter. What cannot be measured is named below the table, and the command then ends with an error.`,
		Example: "  rondo-bench table --quick\n  rondo-bench table --only stage,weights,sandbox\n  rondo-bench table --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			var err error
			if o.Program, err = os.Executable(); err != nil {
				return err
			}
			if !cmd.Flags().Changed("rivals") {
				if _, err := os.Stat(rivalsScript); err == nil {
					o.Rivals = rivalsScript
				}
			}
			r, err := table.Run(cmd.Context(), o, func(name string) { show.Show("measuring: %s", name) })
			show.Clear()
			if err != nil {
				return fmt.Errorf("measure the table: %w", err)
			}
			print := printBenchTable
			if g.JSON {
				print = func(w io.Writer, r table.Result) error { return app.PrintJSON(w, r) }
			}
			if err := print(cmd.OutOrStdout(), r); err != nil || len(r.Missing) == 0 {
				return err
			}
			return errors.New("not measured: " + strings.Join(slices.Sorted(maps.Keys(r.Missing)), ", "))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Quick, "quick", false, "small loads")
	flags.StringSliceVar(&o.Only, "only", nil, "measure these alone: "+strings.Join(table.Names(), ", "))
	flags.StringVar(&o.Rivals, "rivals", "", "script that measures the rivals (default bench/rivals/run, where it is)")
	return cmd
}

func printBenchTable(w io.Writer, r table.Result) error {
	fmt.Fprintf(w, "%s; %s, %d CPUs, a load of %.1f before and %.1f behind; %.0f s\n\n", r.On, r.Go, r.CPUs, r.Load[0], r.Load[1], r.Seconds)
	t := app.NewTable("WHAT", "UNIT", "RONDO", "OTHER", "BESIDE", "RATIO")
	for _, row := range r.Rows {
		times := ""
		if row.Ratio > 0 {
			times = fmt.Sprintf("%.2f", row.Ratio)
		}
		t.Row(row.What, row.Unit, figure(row.Rondo), figure(row.Other), row.Beside, times)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		if _, err := fmt.Fprintf(w, "\n%s: %s", name, r.Missing[name]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// figure has three digits that count.
func figure(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
