// Package logs has the command that tells what happened in a run, event by event, in plain words.
package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/export/episode"
)

// New makes the command `rondo logs`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs RUN [ROLLOUT]", Short: "Tell what happens in a run, or in one of its rollouts, line by line",
		Args: cobra.RangeArgs(1, 2),
		Long: `Logs tells each event of a run in a sentence: what a model said and called, how its tools and tests ended,
which batches were made, and what failed. ROLLOUT names a rollout, or a group, whose rollouts are all
told. RUN can be _, the catalogue. "rondo events tail" prints the same events as they are recorded.`,
		Example: `  rondo logs demo-1 --follow
  rondo logs demo-1 g000003-1
  rondo logs demo-1 g000003`,
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			about := ""
			if len(args) == 2 {
				about = args[1]
			}
			return tell(cmd, g, p, args[0], about)
		}),
	}
	cmd.Flags().BoolVarP(&g.Follows, "follow", "f", false, "tell new events as they arrive")
	return cmd
}

// tell prints the events of a run, or those about a rollout or a group.
func tell(cmd *cobra.Command, g *app.Global, p *plane.Plane, run, about string) error {
	found := about == ""
	show := func(e events.Event) error {
		member := e.Type.Kind() == episode.RolloutKind && events.GroupOf(e.Entity) == about
		if about != "" && e.Entity != about && !member {
			return nil
		}
		found = true
		return print(cmd.OutOrStdout(), g, e)
	}
	unknown := fmt.Errorf("run %s has no rollout and no group %s: `rondo trajectories list %s` lists the rollouts",
		run, app.Line(about, 80), run)
	if !found && !runfile.ValidToken(about) {
		return unknown
	}
	if g.Follows {
		if !found {
			if ok, err := hasEntity(cmd.Context(), p, run, about); err != nil || !ok {
				return cmp.Or(err, unknown)
			}
		}
		return p.Log.Follow(cmd.Context(), run, 1, "", show)
	}
	for e, err := range p.Log.All(cmd.Context(), run, 1) {
		if err != nil {
			return err
		}
		if err := show(e); err != nil {
			return err
		}
	}
	if !found {
		return unknown
	}
	return nil
}

// hasEntity reports whether the stream of a run has a rollout or a group.
func hasEntity(ctx context.Context, p *plane.Plane, run, about string) (bool, error) {
	for _, kind := range []string{episode.RolloutKind, episode.GroupKind} {
		if _, err := p.Log.Last(ctx, run, kind, about); !errors.Is(err, eventlog.ErrNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// toldEvent is an event as `logs --json` prints it.
type toldEvent struct {
	Seq      uint64      `json:"seq"`
	Time     time.Time   `json:"time"`
	Type     events.Type `json:"type"`
	Entity   string      `json:"entity"`
	Sentence string      `json:"sentence"`
}

// longest is how many bytes of what a model or a tool said are told.
const longest = 400

func print(w io.Writer, g *app.Global, e events.Event) error {
	sentence, err := Sentence(e)
	if err != nil {
		sentence = fmt.Sprintf("%s cannot be read: %v", e.Type, err)
	}
	if g.JSON {
		return app.PrintJSON(w, toldEvent{e.Seq, e.Time, e.Type, e.Entity, sentence})
	}
	_, err = fmt.Fprintf(w, "%s %-12s %s\n", e.Time.Local().Format("15:04:05.000"), e.Entity,
		app.Line(sentence, longest))
	return err
}
