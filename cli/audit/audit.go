// Package audit is the command that checks runs and closes their books.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/tables"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/recovery"
)

// auditOptions say what an audit shows beside its verdict.
type auditOptions struct {
	feed  string
	by    []string
	bias  bool
	quick bool
	watch bool
}

// New makes the command `rondo audit`.
func New(g *app.Global) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit [RUN]",
		Short: "Check a run's log and objects, and close its books",
		Long: `Audit reads the whole log of a run and every object that it names, and proves or refutes that all chains are
unbroken, no event is there twice, every rollout has at most one outcome, no rollout was batched twice, every
object has its digest, every started rollout is in exactly one of trained, stale, filtered, failed and in
flight, and the run's stream, its archive and the catalogue agree. It exits with 2 when it finds a fault. The run may still be open: the audit covers the events recorded so far.

--by divides the books of each feed: by task, by reason (which filter, which mask, which class of failure) or by
stage (who has the rollout, or had it last); the parts add up to the whole. --bias compares the rollouts that a feed
drops (stale, filtered, failed) with those that it trains on: do the long ones, or those of hard tasks, get lost?
--quick closes the books without checking events and objects, as does an audit of all runs, which names none.
--watch follows a run and closes its books again whenever they have changed, until it is closed and at rest.

It also lists the run's dead letters: messages that the intake refused, messages that a service gave up, and rejected weights.
Of an open run whose last weights were rejected it says so: such a run stands still.
The audit of _, the catalogue, lists the dead letters of all runs, and those that belong to no run.`,
		Example: `  rondo audit demo-1 --json
  rondo audit demo-1 --by reason --by stage
  rondo audit demo-1 --quick --bias --feed trainer
  rondo audit demo-1 --watch --by stage
  rondo audit
  rondo audit _`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, by := range o.by {
				if !slices.Contains(books.Divisions, by) {
					return fmt.Errorf("--by %q: use %s", by, strings.Join(books.Divisions, ", "))
				}
			}
			g.Follows = o.watch
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			if len(args) == 0 {
				return auditAll(cmd, g, p, o)
			}
			if err := p.MustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			if o.watch {
				return watchBooks(cmd, g, p, args[0], o)
			}
			return auditRun(cmd, g, p, args[0], o)
		},
	}
	cmd.Flags().StringSliceVar(&o.by, "by", nil, "divide the books by "+strings.Join(books.Divisions, ", "))
	cmd.Flags().BoolVar(&o.bias, "bias", false, "compare length, turns and difficulty of dropped and trained rollouts")
	cmd.Flags().StringVar(&o.feed, "feed", "", "show the books of this feed only")
	cmd.Flags().BoolVar(&o.quick, "quick", false, "close the books without checking events and objects")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "follow the run and close its books whenever they have changed")
	return cmd
}

func auditRun(cmd *cobra.Command, g *app.Global, p *plane.Plane, run string, o auditOptions) error {
	letters, err := deadLetters(cmd.Context(), p.Log, run)
	if err != nil {
		return err
	}
	if run == events.Catalogue {
		if len(o.by) > 0 || o.bias || o.feed != "" {
			return errors.New("the catalogue has no books: name a run")
		}
		return listLetters(cmd.OutOrStdout(), g, letters)
	}
	report, l, err := check(cmd.Context(), p, run, o.quick)
	if err == nil && !o.quick {
		report.Findings, err = compare(cmd.Context(), p, run, recovery.Segments, report.Findings)
	}
	if err != nil {
		return err
	}
	a, err := newAuditReport(report, letters, l, o)
	if err == nil && !l.Closed {
		a.Waits, err = tables.RejectedWeights(cmd.Context(), p.Log, l.Config.Policy, l.PolicyVersion)
	}
	if err != nil {
		return err
	}
	if g.JSON {
		err = app.PrintJSON(cmd.OutOrStdout(), a)
	} else {
		printAudit(cmd.OutOrStdout(), a, o.quick)
	}
	if err == nil && len(report.Findings) > 0 {
		err = &app.ExitError{Code: app.ExitFindings, Err: fmt.Errorf("audit of %s: %d findings", run,
			len(report.Findings))}
	}
	return err
}

// check reads the run and closes its books; a quick one looks at nothing else.
func check(ctx context.Context, p *plane.Plane, run string, quick bool) (audit.Report, *books.Run, error) {
	if quick {
		l, err := books.Read(ctx, p.Log.Reader, run)
		report := audit.Report{Run: run, Findings: []audit.Finding{}}
		if err != nil {
			return report, nil, err
		}
		report.Events = l.Events
		for _, feed := range l.Feeds() {
			report.Feeds = append(report.Feeds, l.Balance(feed))
		}
		return report, l, nil
	}
	c := audit.New(ctx, run, p.Store)
	for e, err := range p.Log.All(ctx, run, 1) {
		if err == nil {
			err = c.Event(e)
		}
		if err != nil {
			return audit.Report{}, nil, fmt.Errorf("check run %s: %w", run, err)
		}
	}
	return c.Finish(), c.Books(), nil
}

// compare adds to findings where the run's catalogue, stream and archive differ.
func compare(ctx context.Context, p *plane.Plane, run string, depth recovery.Depth,
	findings []audit.Finding) ([]audit.Finding, error) {
	wrong, err := recovery.Compare(ctx, p.Log.Archive, run, depth)
	for _, f := range wrong {
		findings = append(findings, audit.Finding{Rule: audit.RuleArchive, Event: string(f.Kind), Message: f.Found})
	}
	return findings, err
}

// auditReport is the report with the first feed's books at the top, where scripts look for them.
type auditReport struct {
	books.Balance
	audit.Report
	Books       []books.Division `json:"books,omitempty"`
	Bias        []books.Bias     `json:"bias,omitempty"`
	DeadLetters []DeadLetter     `json:"dead_letters"`
	// Waits is why the run stands still, or will soon, where its last weights were rejected.
	Waits string `json:"waits,omitempty"`
}

func newAuditReport(r audit.Report, letters []DeadLetter, l *books.Run, o auditOptions) (auditReport, error) {
	if o.feed != "" {
		if !slices.Contains(l.Feeds(), o.feed) {
			return auditReport{}, fmt.Errorf("run %s has no feed %q: it has %s", r.Run, o.feed,
				strings.Join(l.Feeds(), ", "))
		}
		r.Feeds = []books.Balance{l.Balance(o.feed)}
	}
	a := auditReport{Report: r, DeadLetters: letters}
	if len(r.Feeds) > 0 {
		a.Balance = r.Feeds[0]
	}
	for _, b := range r.Feeds {
		for _, by := range o.by {
			parts, err := l.Divide(b.Feed, by)
			if err != nil {
				return a, err
			}
			a.Books = append(a.Books, parts)
		}
		if o.bias {
			a.Bias = append(a.Bias, l.Bias(b.Feed))
		}
	}
	return a, nil
}

func printAudit(w io.Writer, a auditReport, quick bool) {
	if quick {
		fmt.Fprintf(w, "run %s: %d events\n", a.Run, a.Events)
	} else {
		fmt.Fprintf(w, "run %s: %d events, %d objects, %d duplicates\n", a.Run, a.Events, a.Objects, a.Duplicates)
	}
	for _, b := range a.Feeds {
		tables.PrintBalance(w, b)
	}
	for _, b := range a.Books {
		tables.PrintBooks(w, b)
	}
	for _, b := range a.Bias {
		tables.PrintBias(w, b)
	}
	printLetters(w, a.DeadLetters)
	for _, f := range a.Findings {
		fmt.Fprintln(w, f)
	}
	if a.Waits != "" {
		fmt.Fprintf(w, "waits: %s\n", app.Clean(a.Waits))
	} else if len(a.Findings) == 0 && !quick {
		fmt.Fprintln(w, "nothing is wrong")
	}
}
