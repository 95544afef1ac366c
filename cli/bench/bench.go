// Package bench has the program rondo-bench, whose commands measure.
package bench

import (
	"context"
	"errors"
	"fmt"
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
	app.Program(g, root, newBenchStage, newBenchFeed, newBenchReplay, newBenchIndex, newBenchSandbox, newBenchLong,
		newBenchPipeline, newBenchAgent, newBenchWeights,
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
	}
	measure := func(ctx context.Context, show *app.Progress) (stage.Result, error) {
		return stage.Run(ctx, o, func(line string) { show.Line("%s", line) })
	}
	cmd.Flags().IntVar(&o.Events, "events", 20000, "events of one turn; an eighth of them where every append is synced")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 7, "turns of either side at each durability")
	return measuring(g, "the stage", cmd, measure)
}
