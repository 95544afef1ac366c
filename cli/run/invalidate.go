package run

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// NewInvalidate makes the command `rondo invalidate`.
func NewInvalidate(g *app.Global) *cobra.Command {
	var where, reason string
	var dry bool
	cmd := &cobra.Command{
		Use:   "invalidate RUN --where CONDITIONS --reason TEXT",
		Short: "Flag rollouts whose data must not be used",
		Long: `Invalidate submits to the intake, for every rollout that meets all conditions, that its data must not be used, for
example because its verifier was wrong or because it cheated. No later batch trains on it. What was trained on
stays in the books as trained: the answer says how much that is, and in which steps.

Conditions are divided by commas, and all of them must hold:

  task=NAME  rollout=ID  group=ID  stop_reason=TEXT   * stands for anything: task=fix-*; != is the opposite
  task_digest=DIGEST                                 the task as the rollout was scored
  reward>=N  turns<N  tokens>N  policy_version=N      =, !=, <, <=, > and >=; what is not scored has no reward
  before=SEQ  after=SEQ                              where on the run's log it was scored, failed or, until then, started

Failed and already invalidated rollouts are skipped, so running the same command again changes nothing.`,
		Example: `  rondo invalidate demo-1 --where 'task=fix-tests,reward>=0.9' --reason 'the verifier accepted an empty patch' --dry-run
  rondo invalidate demo-1 --where 'rollout=g000012-3' --reason 'it read the solution'
  rondo invalidate demo-1 --where 'task_digest=sha256:9f2c*,after=1200,before=3400' --reason 'flaky tests'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conditions, err := parseWhere(where)
			if err != nil {
				return err
			}
			if strings.TrimSpace(reason) == "" || len(reason) > 1000 {
				return errors.New("--reason: say in 1 to 1000 bytes why the data must not be used")
			}
			p, err := plane.ConnectRun(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			v, err := invalidate(cmd.Context(), p, args[0], conditions, reason, dry)
			if err == nil && v.Matched == 0 {
				err = fmt.Errorf("no rollout of run %s matches --where %s: `rondo trajectories list %s` lists rollouts and tasks",
					args[0], app.Line(where, 200), args[0])
			}
			if g.JSON {
				return errors.Join(app.PrintJSON(cmd.OutOrStdout(), v), err)
			}
			printInvalidation(cmd.OutOrStdout(), v)
			return err
		},
	}
	cmd.Flags().StringVar(&where, "where", "", "conditions, divided by commas (required)")
	cmd.Flags().StringVar(&reason, "reason", "", "why the data must not be used (required)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be invalidated, and submit nothing")
	cmd.MarkFlagRequired("where")
	cmd.MarkFlagRequired("reason")
	return cmd
}

// invalidation is what `rondo invalidate` did.
type invalidation struct {
	Run      string   `json:"run"`
	DryRun   bool     `json:"dry_run,omitempty"`
	Matched  int      `json:"matched"`
	Failed   int      `json:"failed"`  // of those that match: used by nobody
	Already  int      `json:"already"` // invalidated before
	Stated   int      `json:"stated"`
	Rollouts []string `json:"rollouts"` // that are invalidated now, or would be
	// Batched says for each feed which of them are in its batches, by step.
	Batched map[string]map[int64][]string `json:"batched,omitempty"`
}

// statedAtOnce is how many facts are on their way to the intake together.
const statedAtOnce = 16

func invalidate(ctx context.Context, p *plane.Plane, run string, where []condition, reason string,
	dry bool) (invalidation, error) {
	v := invalidation{Run: run, DryRun: dry, Rollouts: []string{}, Batched: map[string]map[int64][]string{}}
	l, err := books.Read(ctx, p.Log.Reader, run)
	if err != nil {
		return v, err
	}
	for _, r := range selected(l, where) {
		v.Matched++
		switch {
		case r.Invalidated:
			v.Already++
		case r.Failed:
			v.Failed++
		default:
			v.Rollouts = append(v.Rollouts, r.ID)
			v.batched(l, r.ID)
		}
	}
	if dry {
		return v, nil
	}
	answers := make([]bool, len(v.Rollouts))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(statedAtOnce)
	for i, id := range v.Rollouts {
		all.Go(func() error {
			err := stateInvalid(ctx, p, run, id, reason)
			answers[i] = err == nil
			return err
		})
	}
	err = all.Wait()
	for _, ok := range answers {
		if ok {
			v.Stated++
		}
	}
	if err != nil {
		err = fmt.Errorf("%d of %d rollouts are invalidated; running the command again goes on: %w", v.Stated,
			len(v.Rollouts), err)
	}
	return v, err
}

func (v *invalidation) batched(l *books.Run, id string) {
	for _, feed := range l.Feeds() {
		step := l.TrainedAt(feed, id)
		if step == 0 {
			continue
		}
		if v.Batched[feed] == nil {
			v.Batched[feed] = map[int64][]string{}
		}
		v.Batched[feed][step] = append(v.Batched[feed][step], id)
	}
}

// stateInvalid states the fact once for the same reason, however often it is said. The id is of
// this rollout alone: the intake takes one message of an id.
func stateInvalid(ctx context.Context, p *plane.Plane, run, rollout, reason string) error {
	id := sha256.Sum256([]byte(run + "\x00" + rollout + "\x00" + reason))
	_, err := plane.Submit(ctx, p, eventlog.Submission{
		Run: run, Type: events.RolloutInvalidatedType, Entity: rollout, Data: events.RolloutInvalidated{Reason: reason},
		ID: fmt.Sprintf("invalidate-%x", id[:16]),
	})
	if err != nil {
		return fmt.Errorf("invalidate %s: %w", rollout, err)
	}
	return nil
}

// mostListed bounds the rollouts that are listed for people.
const mostListed = 20

func printInvalidation(w io.Writer, v invalidation) {
	for i, id := range v.Rollouts {
		if i == mostListed {
			fmt.Fprintf(w, "… and %d more (--json lists all)\n", len(v.Rollouts)-i)
			break
		}
		fmt.Fprintln(w, id)
	}
	verb, n := "are invalidated now", v.Stated
	if v.DryRun {
		verb, n = "would be invalidated", len(v.Rollouts)
	}
	fmt.Fprintf(w, "%d of %d rollouts that match %s; %d were before, %d failed\n", n, v.Matched,
		verb, v.Already, v.Failed)
	for _, feed := range app.SortedKeys(v.Batched) {
		for _, step := range app.SortedKeys(v.Batched[feed]) {
			fmt.Fprintf(w, "batch %d of feed %s holds %d of them already\n", step, feed, len(v.Batched[feed][step]))
		}
	}
}
