package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

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

// runs lists the runs, the newest first, below what is wrong, what waits and what runs.
func (d *Dashboard) runs(w http.ResponseWriter, r *http.Request) error {
	b, _, release, err := d.openCatalogue(r, 0)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	p, err := paged(r, "page", len(b.state.order), runsPage)
	names := slices.Clone(b.state.order)
	slices.Reverse(names)
	var rows []runRow
	for _, name := range names[p.From:p.To] {
		rows = append(rows, runRow{listedRun: *b.state.runs[name]})
	}
	unclosed, rejected, waits := b.state.unclosed(), b.state.rejections(), b.state.waitingLetters(time.Now())
	b.mu.Unlock()
	if err != nil {
		return err
	}
	h, known, err := d.homeOf(r, unclosed, waits)
	if err != nil {
		return err
	}
	err = together(len(rows), func(i int) error {
		rows[i].State, rows[i].Why = known[rows[i].Name].State, known[rows[i].Name].Why
		return d.unreadable(r.Context(), rows[i].Name, &rows[i], d.describe(r.Context(), &rows[i]))
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.State == stateUnreadable && known[row.Name].State != stateUnreadable {
			h.Wrong = append(h.Wrong, stateRemark(row.Name, row.State, row.Why))
		}
	}
	h.Wrong, h.MoreWrong = atMost(append(h.Wrong, rejected...), maxRemarks)
	h.Waits, h.MoreWaits = atMost(h.Waits, maxRemarks)
	return d.page(w, http.StatusOK, "runs", map[string]any{"Title": "Runs", "Here": "runs", "Home": h,
		"Rows": rows, "Pager": p})
}

// openCatalogue holds the catalogue as of a sequence, 0 for now, folded as far as patience allows,
// and gives its last sequence.
func (d *Dashboard) openCatalogue(r *http.Request, at uint64) (b *book[catalogue], last uint64,
	release func(), err error) {
	in, err := d.log.Incarnation(r.Context(), events.Catalogue)
	if err != nil {
		return nil, 0, nil, err
	}
	if b, release, err = d.catalogue.hold(events.Catalogue, at); err != nil {
		return nil, 0, nil, err
	}
	target := in.LastSeq
	if at > 0 {
		target = min(target, at)
	}
	if !b.has(in, target) {
		d.catalogue.follow(b)
		ctx, cancel := context.WithTimeout(r.Context(), d.patience)
		defer cancel()
		b.await(ctx, target)
	}
	return b, in.LastSeq, release, nil
}

// describe asks for the last facts of a run; its stream is not read for it.
func (d *Dashboard) describe(ctx context.Context, row *runRow) (err error) {
	if row.State == "" {
		row.State, row.Why, err = d.log.RunState(ctx, row.Name)
	}
	if err != nil || row.State == "archived" || row.State == stateUnreadable || row.Feed == "" {
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
