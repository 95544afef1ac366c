package run

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// longestComment bounds the comment of a mark, in characters.
const longestComment = 2000

// marked is what `rondo mark` answers.
type marked struct {
	Run      string `json:"run"`
	Rollout  string `json:"rollout"`
	Marked   bool   `json:"marked"`
	Text     string `json:"text,omitempty"`
	Sequence uint64 `json:"sequence"` // on the run's log
}

// NewMark makes the command `rondo mark`.
func NewMark(g *app.Global) *cobra.Command {
	var remove bool
	var text string
	cmd := &cobra.Command{
		Use: "mark RUN ROLLOUT", Short: "Mark a rollout, with a comment for other people", Args: cobra.ExactArgs(2),
		Long: `Mark records on the run's log that a rollout is worth a look, and why. Nothing is decided by it, and no trainer
gets it: "rondo invalidate" keeps a rollout from being trained on. The dashboard chooses marked rollouts and
saves them as CSV; in Python they have a column in rondo.read(run).rollouts. A comment with a secret is refused.

The archiver seals no more of a run that is closed: a mark that is made behind that is in the run's stream alone
until "rondo archive seal RUN" archives it.`,
		Example: `  rondo mark demo-1 g000012-3 --text 'reads the tests before it edits'
  rondo mark demo-1 g000012-3 --remove`,
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			if n := utf8.RuneCountInString(text); n > longestComment {
				return fmt.Errorf("--text: a comment has at most %d characters, and this one has %d", longestComment, n)
			}
			if cmd.Flags().Changed("text") && text == "" {
				return errors.New("--text: leave it out where there is nothing to say")
			}
			r, err := plane.FindRollout(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			m := marked{Run: args[0], Rollout: r.ID, Marked: !remove, Text: text}
			answer, err := plane.Submit(cmd.Context(), p,
				eventlog.Submission{Run: m.Run, Type: events.MarkRecordedType, Entity: m.Rollout,
					Data: events.MarkRecorded{Marked: m.Marked, Text: text}, ID: nats.NewInbox()[7:]})
			if err != nil {
				return err
			}
			if m.Sequence = answer.Sequence; g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), m)
			}
			verb := "is marked"
			if remove {
				verb = "is no longer marked"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "rollout %s of run %s %s\n", m.Rollout, m.Run, verb)
			return err
		}),
	}
	cmd.Flags().StringVar(&text, "text", "", "what there is to see, at most 2000 characters")
	cmd.Flags().BoolVar(&remove, "remove", false, "take the mark away; its comments stay on the log")
	return cmd
}
