package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/rondo-rl/rondo/books"
)

// shownTasks bounds the rows of the page of a run's tasks.
const shownTasks = 100

// tasks shows which tasks of a run teach something.
func (d *Dashboard) tasks(w http.ResponseWriter, r *http.Request) error {
	b, release, err := d.folded(r)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	pass := 1.0
	if c := b.state.books.Config.Curriculum; c != nil {
		pass = c.Passes()
	}
	rows := b.state.books.Tasks(pass)
	b.mu.Unlock()
	only := r.URL.Query().Get("remark")
	counts := map[string]int{}
	for _, row := range rows {
		counts[row.Remark]++
	}
	var remarks []choice
	for _, name := range []string{"", books.RemarkNoSignal, books.RemarkUnsolved, books.RemarkSolved,
		books.RemarkFails, books.RemarkUntried} {
		n := counts[name]
		if name == "" {
			n = len(rows)
		}
		remarks = append(remarks, choice{fmt.Sprintf("%s: %d", cmp.Or(name, "all"), n),
			address(r, "remark", name, "page", ""), name == only})
	}
	if only != "" {
		if !slices.ContainsFunc(remarks, func(c choice) bool { return c.Here }) {
			return &refusal{http.StatusBadRequest, "There is no such remark on tasks."}
		}
		rows = slices.DeleteFunc(rows, func(t books.TaskRow) bool { return t.Remark != only })
	}
	p, err := paged(r, "page", len(rows), shownTasks)
	if err != nil {
		return err
	}
	return d.page(w, http.StatusOK, "tasks", map[string]any{"Title": "Tasks of " + b.run, "Here": "runs", "Run": b.run,
		"At": b.until, "Rows": rows[p.From:p.To], "Pager": p, "Remarks": remarks, "Pass": pass})
}
