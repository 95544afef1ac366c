// Package top is the command that shows a plane live in a terminal.
package top

import (
	"context"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/retry"
)

// New makes the command `rondo top`.
func New(g *app.Global) *cobra.Command {
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use: "top", Short: "Watch a plane in the terminal: runs, rollouts by stage, backlog, replicas, dead letters",
		Args: cobra.NoArgs,
		Long: `Top shows the runs of a plane with their last step, and where their rollouts are: at the model, the tools or the verifier, waiting for their group, for a
batch or for the trainer. Below are the consumers with a backlog, the inference servers with their versions, and the dead letters. It follows up to 16 runs, the
open ones first.

q and Ctrl-C quit, the arrow keys scroll. Where the output is no terminal, or with --once or --json, top prints the plane once and ends.`,
		Example: `  rondo top
  rondo top --every 5s
  rondo top --once
  rondo top --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return fmt.Errorf("--every %s: give at least 100ms", every)
			}
			out := app.FileOf(cmd.OutOrStdout())
			live := !once && !g.JSON && out != nil && term.IsTerminal(int(out.Fd())) &&
				term.IsTerminal(int(os.Stdin.Fd()))
			g.Follows = live && (g.NATS != "" || plane.InUse(cmd.Context(), g.Dir))
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			where := g.Dir
			if g.NATS != "" {
				where = app.Redacted(g.NATS)
			}
			w := newWatcher(p, where)
			if live {
				return w.show(cmd.Context(), every, tea.WithOutput(out))
			}
			if err := w.read(cmd.Context()); err != nil {
				return err
			}
			s := w.snapshot(cmd.Context())
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), s)
			}
			screen, err := app.NewScreen(cmd.OutOrStdout(), app.ColorAuto, 0)
			if err != nil {
				return err
			}
			screen.Print(s.lines()...)
			return nil
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often the screen is renewed")
	cmd.Flags().BoolVar(&once, "once", false, "print the plane once, also on a terminal")
	return cmd
}

// show follows the plane on a terminal until the user quits.
func (w *watcher) show(ctx context.Context, every time.Duration, options ...tea.ProgramOption) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// the program's own handler ends the context
	screen := tea.NewProgram(model{}, append(options, tea.WithoutSignalHandler())...)
	// A signal ends it as a key does: where the library's own context ends, it closes
	// its input while it reads.
	context.AfterFunc(ctx, screen.Quit)
	go w.follow(ctx)
	go func() {
		for ; ctx.Err() == nil; retry.Sleep(ctx, every) {
			screen.Send(w.snapshot(ctx))
		}
	}()
	_, err := screen.Run()
	return err
}
