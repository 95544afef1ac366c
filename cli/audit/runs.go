package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/recovery"
)

// auditAll closes the books of every run.
func auditAll(cmd *cobra.Command, g *app.Global, p *plane.Plane, o auditOptions) error {
	if o.watch || o.feed != "" {
		return errors.New("name the run: --watch and --feed are about one")
	}
	names, err := p.Log.AllRuns(cmd.Context(), events.RunOpenedType)
	if err != nil {
		return err
	}
	list, wrong := []auditReport{}, 0
	for _, name := range names {
		report, l, err := check(cmd.Context(), p, name, true)
		if errors.Is(err, eventlog.ErrNotFound) { // its stream is lost, and nothing of it is archived
			l, err = books.New(name), nil
		}
		if err == nil {
			report.Findings, err = compare(cmd.Context(), p, name, recovery.Ends, report.Findings)
		}
		if err != nil {
			return err
		}
		wrong += len(report.Findings)
		a, err := newAuditReport(report, []DeadLetter{}, l, o)
		if err != nil {
			return err
		}
		list = append(list, a)
	}
	if g.JSON {
		err = app.PrintJSON(cmd.OutOrStdout(), map[string]any{"runs": list})
	} else {
		for _, a := range list {
			printAudit(cmd.OutOrStdout(), a, true)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d runs\n", len(list))
	}
	if err == nil && wrong > 0 {
		err = &app.ExitError{Code: app.ExitFindings, Err: fmt.Errorf("audit of %d runs: %d findings", len(list), wrong)}
	}
	return err
}

// watchPause is how long books stay on the screen at least.
const watchPause = time.Second

// watchedBooks are the books of a run that is followed.
type watchedBooks struct {
	mu    sync.Mutex
	books *books.Run
	shown auditReport
}

// watchBooks follows a run's log and prints the books whenever they have changed, until the
// run is closed and at rest.
func watchBooks(cmd *cobra.Command, g *app.Global, p *plane.Plane, run string, o auditOptions) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	w := &watchedBooks{books: books.New(run)}
	done := make(chan error, 1)
	go func() { done <- p.Log.Follow(ctx, run, 1, "", w.take) }()
	tick := time.NewTimer(watchPause / 10)
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			tick.Reset(watchPause)
		}
		rested, err := w.Show(cmd.OutOrStdout(), g, o)
		if err != nil || rested {
			return err
		}
	}
}

func (w *watchedBooks) take(e events.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.books.Apply(e)
}

// Show prints the books if they have changed, and reports whether they will not change any more.
func (w *watchedBooks) Show(out io.Writer, g *app.Global, o auditOptions) (rested bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rested = w.books.AtRest()
	if w.books.Events == 0 {
		return false, nil
	}
	a, err := w.report(o)
	if err != nil || reflect.DeepEqual(a.Feeds, w.shown.Feeds) && reflect.DeepEqual(a.Books, w.shown.Books) {
		return rested, err
	}
	w.shown = a
	if g.JSON {
		return rested, app.PrintJSON(out, a)
	}
	printAudit(out, a, true)
	return rested, nil
}

func (w *watchedBooks) report(o auditOptions) (auditReport, error) {
	report := audit.Report{Run: w.books.Name, Events: w.books.Events, Findings: []audit.Finding{}}
	for _, feed := range w.books.Feeds() {
		report.Feeds = append(report.Feeds, w.books.Balance(feed))
	}
	return newAuditReport(report, []DeadLetter{}, w.books, o)
}
