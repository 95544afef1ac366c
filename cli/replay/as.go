package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/replay"
)

// replayOptions are the flags of `rondo replay`.
type replayOptions struct {
	service.Settings // of the sandboxes
	verify           bool
	tools            bool
	rollouts         []string
	slots            int
	as               string
	set              []string
	from             string
	tasks            string
	rerun            bool // verifiers
	to               uint64
	given            []string // flags of the command line
}

func (o *replayOptions) sandboxes() replay.Sandboxes {
	return replay.Sandboxes{Slots: o.slots, Machine: o.Machine}
}

// replayed is what `rondo replay --as` answers.
type replayed struct {
	Run string `json:"run"`
	Of  string `json:"replays"`
	pipeline.RerunResult
	Seconds float64 `json:"seconds"`
}

func replayAs(cmd *cobra.Command, g *app.Global, p *plane.Plane, run string, o replayOptions) error {
	if !events.ValidRun(o.as) {
		return fmt.Errorf("--as %q: use letters, digits, - and _, at most 64", o.as)
	}
	ctx, began := cmd.Context(), time.Now()
	cfg, err := p.Log.RecordedConfig(ctx, run)
	if err != nil {
		return err
	}
	if cfg, err = replay.Changed(cfg, o.set); err != nil {
		return err
	}
	show := app.NewProgress(g)
	verifiers := o.from == replay.FromScores && (o.rerun || o.tasks != "")
	if o.from == replay.FromScores && o.tasks != "" {
		if cfg, err = opening.WithTests(ctx, p.Store, cfg, o.tasks, show.Line); err != nil {
			return err
		}
	}
	if verifiers {
		if err := service.CheckSandbox(ctx, []string{topology.Scorer}, o.Settings); err != nil {
			return err
		}
	}
	result, err := replay.As(ctx, p.Log, replay.Options{
		Run: run, As: o.as, Config: cfg, From: o.from, Verifiers: verifiers, Sandboxes: o.sandboxes(), Until: o.to,
		Progress: func(seq uint64) {
			show.Show("sequence %d", seq)
			if seq%1000 == 0 {
				show.Line("sequence %d", seq)
			}
		},
	})
	show.Clear()
	if err != nil {
		return err
	}
	return printReplayed(cmd.OutOrStdout(), g, replayed{Run: o.as, Of: run, RerunResult: result,
		Seconds: time.Since(began).Seconds()})
}

func printReplayed(w io.Writer, g *app.Global, r replayed) error {
	if g.JSON {
		return app.PrintJSON(w, r)
	}
	fmt.Fprintf(w, "run %s replays %s: %d events copied in %.1f s; decided again:\n", r.Run, r.Of, r.Copied, r.Seconds)
	for _, t := range slices.Sorted(maps.Keys(r.Decided)) {
		fmt.Fprintf(w, "  %d %s\n", r.Decided[t], t)
	}
	fmt.Fprintf(w, "\n  what differs   rondo diff %s %s\n  the books      rondo audit %s\n", r.Of, r.Run, r.Run)
	return nil
}
