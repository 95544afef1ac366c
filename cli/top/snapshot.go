package top

import (
	"time"

	"github.com/rondo-rl/rondo/evaluation/steps"
	"github.com/rondo-rl/rondo/health"
)

// Snapshot is a plane at a moment.
type Snapshot struct {
	At    time.Time `json:"at"`
	Where string    `json:"where"`
	// Reading: what the log had at the start is not read yet, so the figures are too low.
	Reading bool            `json:"-"`
	Outages []health.Outage `json:"outages,omitempty"`
	Runs    []Run           `json:"runs"`
	// More is how many runs are not shown: those that were opened first.
	More        int        `json:"more,omitempty"`
	Consumers   []Consumer `json:"consumers"`
	Replicas    []Replica  `json:"replicas"`
	DeadLetters Letters    `json:"dead_letters"`
	// Unknown says why a part is missing.
	Unknown []string `json:"unknown,omitempty"`
}

// stateReading is the state of a run whose log has not been read yet.
const stateReading = "reading"

// Run is a run of the plane.
type Run struct {
	Name   string `json:"run"`
	Policy string `json:"policy"`
	State  string `json:"state"` // open, paused, closed or archived; stateReading on a screen
	Reason string `json:"reason,omitempty"`
	steps.Flight
	// Last is the last step that the first feed's trainer has taken, and Rewards the mean
	// rewards of the last ones.
	Last    *steps.Row `json:"last,omitempty"`
	Rewards []float64  `json:"rewards,omitempty"`
	// Unreadable is why the run's events cannot be read.
	Unreadable string `json:"unreadable,omitempty"`
}

// Consumer is a durable consumer of a stream with its backlog.
type Consumer struct {
	Stream  string `json:"stream"`
	Name    string `json:"consumer"`
	Waiting uint64 `json:"waiting"` // messages that nobody has taken
	Taken   int    `json:"taken"`   // messages that are being worked on
	Again   int    `json:"again"`   // of them, those that were delivered before
}

// Replica is an inference server that serves a policy.
type Replica struct {
	Policy  string    `json:"policy"`
	Name    string    `json:"replica"`
	Version int64     `json:"version"`
	Behind  int64     `json:"behind"` // versions that were published since
	Lost    bool      `json:"lost,omitempty"`
	At      time.Time `json:"at"`
}

// Letters are the dead letters of the plane.
type Letters struct {
	Total int       `json:"total"`
	Last  string    `json:"last,omitempty"` // why
	At    time.Time `json:"at,omitzero"`
}
