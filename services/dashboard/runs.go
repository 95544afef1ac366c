package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Rows of the tables on a page.
const (
	runsPage     = 25
	rolloutsPage = 50
	groupsPage   = 20
)

// pager is where a page is among others of its kind.
type pager struct {
	Name              string // of its parameter
	Page, Pages, Rows int
	From, To          int // rows, from 0
	Before, After     string
}

// paged finds the rows of a page; each address keeps the other parameters.
func paged(r *http.Request, name string, rows, size int) (pager, error) {
	n, err := whole(r, name, 1)
	if err != nil {
		return pager{}, err
	}
	pages := max(1, (rows+size-1)/size)
	page := int(max(1, min(n, int64(pages))))
	p := pager{Name: name, Page: page, Pages: pages, Rows: rows, From: (page - 1) * size, To: min(page*size, rows)}
	if page > 1 {
		p.Before = address(r, name, page-1)
	}
	if page < pages {
		p.After = address(r, name, page+1)
	}
	return p, nil
}

// runRow is a run as the list shows it.
type runRow struct {
	listedRun
	State, Why string
	Step       int64
	Reward     *float64 // of the last batch of the first feed
	Staleness  int64
}

// runs lists the runs, the newest first.
func (d *Dashboard) runs(w http.ResponseWriter, r *http.Request) error {
	b, release := d.catalogue.hold()
	defer release()
	if err := d.caughtUp(r.Context(), b); err != nil {
		return err
	}
	b.mu.Lock()
	p, err := paged(r, "page", len(b.state.order), runsPage)
	names := slices.Clone(b.state.order)
	slices.Reverse(names)
	var rows []runRow
	for _, name := range names[p.From:p.To] {
		rows = append(rows, runRow{listedRun: *b.state.runs[name]})
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	for i := range rows {
		if err := d.describe(r.Context(), &rows[i]); err != nil {
			return err
		}
	}
	return d.page(w, http.StatusOK, "runs", map[string]any{"Title": "Runs", "Here": "runs", "Rows": rows, "Pager": p})
}

// caughtUp waits until the catalogue's book has what is there now.
func (d *Dashboard) caughtUp(ctx context.Context, b *book[catalogue]) error {
	in, err := d.log.Incarnation(ctx, events.Catalogue)
	if err != nil {
		return err
	}
	if !b.has(in, in.LastSeq) {
		d.catalogue.follow()
		ctx, cancel := context.WithTimeout(ctx, d.patience)
		defer cancel()
		b.await(ctx, in.LastSeq)
	}
	return nil
}

// describe asks for the last facts of a run; its stream is not read for it.
func (d *Dashboard) describe(ctx context.Context, row *runRow) (err error) {
	if row.State, row.Why, err = d.log.RunState(ctx, row.Name); err != nil || row.State == "archived" || row.Feed == "" {
		return err
	}
	last, err := d.log.LastOfType(ctx, row.Name, events.BatchReadyType, row.Feed)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ready, err := events.Data[events.BatchReady](last)
	row.Step, row.Reward, row.Staleness = ready.Step, &ready.RewardMean, ready.Staleness
	return err
}
