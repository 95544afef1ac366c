package books

import (
	"fmt"
	"slices"
	"strings"
)

// Ways to divide the books of a feed.
const (
	ByTask   = "task"   // the task of the rollout
	ByReason = "reason" // why it is where it is: filter, mask, class of failure
	ByStage  = "stage"  // which stage has it, or had it last
)

// Divisions lists the ways to divide the books.
var Divisions = []string{ByTask, ByReason, ByStage}

// Row is one part of a feed's books. The rows of a division add up to the feed's balance.
type Row struct {
	Key string `json:"key"`
	Counts
}

// Division is a feed's books, divided.
type Division struct {
	Feed string `json:"feed"`
	By   string `json:"by"`
	Rows []Row  `json:"rows"`
}

// Divide divides the books of a feed. Rows are sorted by their key.
func (l *Run) Divide(feedName, by string) (Division, error) {
	if !slices.Contains(Divisions, by) {
		return Division{}, fmt.Errorf("the books cannot be divided by %q: use %s", by, strings.Join(Divisions, ", "))
	}
	rows := map[string]*Row{}
	for r := range l.All() {
		entry := l.Entry(feedName, r.ID)
		key := entry.Key(by, r.Task)
		if rows[key] == nil {
			rows[key] = &Row{Key: key}
		}
		rows[key].Add(entry.Outcome, 1)
	}
	b := Division{Feed: feedName, By: by, Rows: []Row{}}
	for _, row := range rows {
		b.Rows = append(b.Rows, *row)
	}
	slices.SortFunc(b.Rows, func(a, b Row) int { return strings.Compare(a.Key, b.Key) })
	return b, nil
}

// Key is the part of the books, divided in one of the ways, that an entry of a rollout of a task is
// in.
func (e Entry) Key(by, task string) string {
	switch {
	case by == ByTask:
		return task
	case by == ByStage:
		return e.Stage
	case e.Reason == "" || e.Reason == string(e.Outcome):
		return string(e.Outcome)
	}
	return string(e.Outcome) + ": " + e.Reason
}
