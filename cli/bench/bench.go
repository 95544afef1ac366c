// Package bench has the program rondo-bench, whose commands measure.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/agent"
	"github.com/rondo-rl/rondo/bench/stage"
	"github.com/rondo-rl/rondo/cli/app"
)

// Main runs the program with the arguments of this process, and gives its exit code.
func Main() int {
	if agent.IsNull() {
		return agent.MainNull()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, g := program()
	err := root.ExecuteContext(ctx)
	app.PrintError(os.Stderr, err, g.JSON)
	return app.ExitCode(err)
}

// program is the program with all its commands.
func program() (*cobra.Command, *app.Global) {
	root := &cobra.Command{
		Use:   "rondo-bench",
		Short: "Measure what the plane costs, as ratios to the same work without it",
		Long: `Measure what the plane costs, as ratios to the same work without it. Each command makes what it measures, and removes it. Some start rondo:
the program beside this one, or the one that RONDO_BINARY names.`,
	}
	g := &app.Global{}
	app.Program(g, root, newBenchStage, newBenchFeed, newBenchReplay, newBenchIndex, newBenchSandbox, newBenchLong, newBenchPipeline, newBenchAgent, newBenchWeights,
		newBenchUtilisation, newBenchScale)
	return root, g
}

// rondo is the program that is measured where a benchmark starts it.
func rondo() (string, error) {
	if named := os.Getenv("RONDO_BINARY"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("RONDO_BINARY: %w", err)
		}
		return path, nil
	}
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(own), "rondo")
	if _, err := exec.LookPath(beside); err != nil {
		return "", errors.New("there is no rondo beside rondo-bench: build both (go build -o bin/ ./cmd/...), or name one by RONDO_BINARY")
	}
	return beside, nil
}

func newBenchStage(g *app.Global) *cobra.Command {
	var o stage.Options
	cmd := &cobra.Command{
		Use:   "stage",
		Short: "Compare one stage of the pipeline with the same stage written directly on nats.go",
		Long: `Stage measures how fast a service takes a message, handles it, appends an event and acknowledges: in the service runtime,
in 64 workers directly on nats.go, and on nats.go without waiting for any answer before the next message.

All run in this process on embedded servers and take turns, once with every append synced to disk and once with a
sync each 100 ms. The result is the median ratio of the service runtime's throughput to the workers', and ratio_to_ceiling that to
what waits for nothing. The benchmark removes everything that it created, and touches no plane.`,
		Example: "  rondo-bench stage\n  rondo-bench stage --events 100000 --pairs 11 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			r, err := stage.Run(cmd.Context(), o, func(line string) { show.Line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure the stage: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printStage(w, r) })
		},
	}
	cmd.Flags().IntVar(&o.Events, "events", 20000, "events of one turn; an eighth of them where every append is synced")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 7, "turns of either side at each durability")
	return cmd
}

func printStage(w io.Writer, r stage.Result) error {
	fmt.Fprintf(w, "%d events in work at once, %d bytes each; %s, %d CPUs; medians of %d pairs of turns\n\n", r.Slots, r.PayloadBytes, r.Go, r.CPUs, r.Pairs)
	t := app.NewColumns(w)
	fmt.Fprintln(t, "DURABILITY\tSTAGE\tEVENTS/S\tCPU µs/EVENT\tALLOCS/EVENT\tBYTES/EVENT\tRATIO\t")
	for _, s := range r.Settings {
		line := func(name string, c stage.Cost, ratio string) {
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%.1f\t%.0f\t%.0f\t%s\t\n", s.Durability, name, c.EventsPerSecond, c.CPUMicroseconds, c.Allocs, c.AllocBytes, ratio)
		}
		line("nats.go, waiting for nothing", s.Ceiling, fmt.Sprintf("rondo has %.2f of it", s.ToCeiling))
		line("nats.go", s.Raw, "1")
		line("rondo", s.Runtime, fmt.Sprintf("%.2f (%.2f to %.2f)", s.Ratio, s.RatioMin, s.RatioMax))
	}
	return t.Flush()
}
