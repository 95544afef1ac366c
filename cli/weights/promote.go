package weights

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/weights"
)

// promotion says in a list what share of the rollouts a version gets.
func promotion(share float64) string {
	switch share {
	case 0:
		return ""
	case 1:
		return " (promoted)"
	}
	return fmt.Sprintf(" (promoted for %.4g %% of the rollouts)", 100*share)
}

func newPromote(g *app.Global) *cobra.Command {
	var share float64
	cmd := &cobra.Command{
		Use: "promote POLICY VERSION", Short: "Choose the version that rollouts are sampled with",
		Args: cobra.ExactArgs(2),
		Long: `Promote lets rollouts be sampled with a version instead of the newest. With --share only that part of the rollouts gets it, always the same ones, and the others
get the version that was promoted before, or the newest. VERSION may be "newest": then each version counts as soon as it is published, as without any
promotion.

Turns go to servers that serve the rollout's version, and wait where none does: side-cars (` + "`rondo weights fetch --follow`" + `) go to the promoted version, those with
--canary to that of the share. The built-in policy serves every version. Runs that pin a policy_version stay with it. ` + "`rondo weights list`" + ` shows what is promoted.`,
		Example: "  rondo weights promote my-model 12 --share 0.1\n  rondo weights promote my-model 12\n  rondo weights promote my-model newest",
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := strconv.ParseInt(args[1], 10, 64) // 0 for a word
			if args[1] != "newest" && (err != nil || version < 1) {
				return fmt.Errorf("version %q: give a number, or newest", app.Line(args[1], 40))
			}
			if cmd.Flags().Changed("share") && (version == 0 || !(share > 0 && share < 1)) {
				return fmt.Errorf("--share %v: must be between 0 and 1, and of a version", share)
			}
			return promote(cmd, g, args[0], func(ctx context.Context, p *plane.Plane,
				last events.WeightsPromoted) (events.WeightsPromoted, error) {
				next := events.WeightsPromoted{Version: version, Share: share}
				if version == 0 {
					return next, nil
				}
				newest, err := current(ctx, p, args[0])
				if err != nil {
					return next, err
				}
				if next.Before = last.Main(newest); next.Before != version {
					return next, nil
				}
				next.Before, err = versionBelow(ctx, p, args[0], version)
				return next, err
			})
		},
	}
	cmd.Flags().Float64Var(&share, "share", 0, "part of the rollouts that get the version, such as 0.1 (default: all)")
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

func newRollback(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback POLICY", Short: "Return to the version that was promoted before", Args: cobra.ExactArgs(1),
		Long: `Rollback takes the version back that was promoted last, or the newest where none was promoted: all rollouts are sampled with the version before it. It stays
promoted until another one is.`,
		Example: "  rondo weights rollback my-model",
		RunE: func(cmd *cobra.Command, args []string) error {
			return promote(cmd, g, args[0], func(ctx context.Context, p *plane.Plane,
				last events.WeightsPromoted) (next events.WeightsPromoted, err error) {
				newest, err := current(ctx, p, args[0])
				if err != nil {
					return next, err
				}
				next.RolledBack = last.Canary(newest)
				if next.Version = last.Before; next.Version == 0 {
					if next.Version, err = versionBelow(ctx, p, args[0], next.RolledBack); err == nil &&
						next.Version == 0 {
						err = fmt.Errorf("policy %s has no version before %d", args[0], next.RolledBack)
					}
				}
				return next, err
			})
		},
	}
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

// versionBelow is the newest version below another one, 0 for none.
func versionBelow(ctx context.Context, p *plane.Plane, policy string, version int64) (found int64, err error) {
	stored, err := weights.Versions(ctx, p.Store, policy)
	for _, s := range stored {
		if s.Version < version {
			found = s.Version
		}
	}
	return found, err
}

// promote states what follows the last promotion.
func promote(cmd *cobra.Command, g *app.Global, policy string,
	decide func(context.Context, *plane.Plane, events.WeightsPromoted) (events.WeightsPromoted, error)) error {
	p, err := plane.Connect(cmd.Context(), g)
	if err != nil {
		return err
	}
	defer p.Close()
	last, err := lastPromotion(cmd.Context(), p.Log.Reader, policy)
	if err != nil {
		return err
	}
	next, err := decide(cmd.Context(), p, last)
	if err != nil {
		return err
	}
	_, err = plane.Submit(cmd.Context(), p, eventlog.Submission{Run: events.Catalogue, Type: events.WeightsPromotedType,
		Entity: policy, ID: nats.NewInbox()[7:], Data: next})
	if err != nil {
		return err
	}
	if g.JSON {
		return app.PrintJSON(cmd.OutOrStdout(), next)
	}
	line := fmt.Sprintf("rollouts of %s get version %d", policy, next.Version)
	switch {
	case next.Version == 0:
		line = fmt.Sprintf("rollouts of %s get the newest version", policy)
	case next.Share > 0:
		line = fmt.Sprintf("%.4g %% of the rollouts of %s get version %d, and the others version %d", 100*next.Share,
			policy, next.Version, next.Before)
	case next.RolledBack > 0:
		line += fmt.Sprintf(", and no more version %d", next.RolledBack)
	}
	fmt.Fprintln(cmd.OutOrStdout(), line)
	return nil
}
