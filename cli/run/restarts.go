package run

import (
	"fmt"

	"github.com/rondo-rl/rondo/books"
)

// restarts are the agents of a run that ended behind a restart.
type restarts struct {
	Restarted int `json:"restarted"`
	// Whole came to all turns that were recorded before.
	Whole int `json:"whole"`
}

// restartsOf gives nil where no agent was started anew.
func restartsOf(t books.Totals) *restarts {
	if t.Restarted == 0 {
		return nil
	}
	return &restarts{t.Restarted, t.Whole}
}

// fewRestarts is up to how many restarts nothing is said of the agent itself.
const fewRestarts = 3

// String says how many came back, and where an agent does not repeat its requests.
func (r *restarts) String() string {
	text := fmt.Sprintf("%d ended behind a restart, and %d of them had all recorded turns again", r.Restarted, r.Whole)
	if r.Restarted > fewRestarts && 2*r.Whole < r.Restarted {
		text += "; this agent does not repeat its requests, so that a restart samples anew"
	}
	return text
}
