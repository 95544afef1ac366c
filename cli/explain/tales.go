package explain

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
)

func newExplainRollout(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "rollout RUN ROLLOUT", Short: "Tell in plain words what became of a rollout, and why",
		Args: cobra.ExactArgs(2),
		Long: `Explain rollout says when a rollout was started, how the model and its tools worked, why it ended, its reward and advantage, and for each feed whether it is
trained on, and if not, the reason. Behind that stands the evidence: what the verifier printed, what the rollout changed in its workspace, its last
calls, and the other rollouts of its group with the first turn in which each said or called something else.`,
		Example: `  rondo explain rollout demo-1 g000003-1
  rondo explain rollout demo-1 g000003-1 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName("rollout", args[1]); err != nil {
				return err
			}
			p, err := plane.ConnectRun(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			r, err := plane.FindRollout(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			s, err := readSource(cmd.Context(), p, args[0], events.GroupOf(args[1]))
			if err != nil {
				return err
			}
			t := s.ofRollout(args[0], args[1], r)
			t.Evidence = s.evidence(cmd.Context(), p, r)
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), t)
			}
			t.print(cmd.OutOrStdout())
			return t.Evidence.print(cmd.OutOrStdout())
		},
	}
}

func newExplainGroup(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "group RUN GROUP", Short: "Tell in plain words what became of a group, and why", Args: cobra.ExactArgs(2),
		Long: `Explain group says how the rollouts of a group ended, what its estimator made of their rewards, and what each feed does with them. The table shows its rollouts
as the run's first feed has them. It reads only the log.`,
		Example: `  rondo explain group demo-1 g000003
  rondo explain group demo-1 g000003 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName("group", args[1]); err != nil {
				return err
			}
			p, err := plane.ConnectRun(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			s, err := readSource(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			t := s.ofGroup(args[0])
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), t)
			}
			t.print(cmd.OutOrStdout())
			fmt.Fprintln(cmd.OutOrStdout())
			return s.members(s.books.FirstFeed()).Print(cmd.OutOrStdout())
		},
	}
}
