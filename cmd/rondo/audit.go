package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/ledger"
	"github.com/rondo-rl/rondo/tests/checker"
)

func printBalance(w io.Writer, b ledger.Balance) {
	fmt.Fprintf(w, "feed %s: %d started = %d trained + %d stale + %d filtered + %d failed + %d in flight; step %d of %d consumed\n",
		b.Feed, b.Started, b.Trained, b.Stale, b.Filtered, b.Failed, b.InFlight, b.Consumed, b.Steps)
}

func newAudit(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "audit RUN",
		Short: "Check a run's log and objects, and close its books",
		Long: `Audit reads the whole log of a run and every object that it names, and proves or refutes that all chains are
unbroken, no event is there twice, every rollout has at most one outcome, no rollout was batched twice, every
object has its digest, and every started rollout is in exactly one of trained, stale, filtered, failed and in
flight. It exits with 2 when it finds a fault.

It also lists the run's dead letters: what was refused at the door, given up by a service, or rejected as weights.
The audit of _, the catalogue, lists those of all runs and of none.`,
		Example: "  rondo audit demo-1 --json\n  rondo audit _", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			if err := p.mustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			letters, err := deadLetters(cmd.Context(), p.log, args[0])
			if err != nil {
				return err
			}
			if args[0] == events.Catalogue {
				return listLetters(cmd.OutOrStdout(), g, letters)
			}
			report, err := checker.Check(cmd.Context(), p.log, args[0])
			if err != nil {
				return err
			}
			if g.json {
				err = printJSON(cmd.OutOrStdout(), newAuditReport(report, letters))
			} else {
				printAudit(cmd.OutOrStdout(), report, letters)
			}
			if err == nil && len(report.Findings) > 0 {
				err = &exitError{found, fmt.Errorf("audit of %s: %d findings", args[0], len(report.Findings))}
			}
			return err
		},
	}
}

// auditReport is the report with the first feed's books at the top, where scripts look for them.
type auditReport struct {
	ledger.Balance
	checker.Report
	DeadLetters []deadLetter `json:"dead_letters"`
}

func newAuditReport(r checker.Report, letters []deadLetter) auditReport {
	a := auditReport{Report: r, DeadLetters: letters}
	if len(r.Feeds) > 0 {
		a.Balance = r.Feeds[0]
	}
	return a
}

func printAudit(w io.Writer, r checker.Report, letters []deadLetter) {
	fmt.Fprintf(w, "run %s: %d events, %d objects, %d duplicates\n", r.Run, r.Events, r.Objects, r.Duplicates)
	for _, b := range r.Feeds {
		printBalance(w, b)
	}
	printLetters(w, letters)
	for _, f := range r.Findings {
		fmt.Fprintln(w, f)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(w, "nothing is wrong")
	}
}

func printLetters(w io.Writer, letters []deadLetter) {
	for _, d := range letters {
		fmt.Fprintf(w, "dead letter: %s at sequence %d of %s: %s\n", d.Subject, d.Sequence, d.Stream, d.Reason)
	}
}

func listLetters(w io.Writer, g *global, letters []deadLetter) error {
	if g.json {
		return printJSON(w, map[string]any{"run": events.Catalogue, "dead_letters": letters})
	}
	printLetters(w, letters)
	_, err := fmt.Fprintf(w, "%d dead letters\n", len(letters))
	return err
}
