package steps

import (
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// Flight is where the rollouts are that have not come to their end.
type Flight struct {
	// Stages counts rollouts by the stage that has them, those behind the verifier too, and samples
	// that wait for the trainer.
	Stages map[string]int `json:"stages"`
	// Oldest is when the oldest rollout without an outcome was started, the zero
	// time where there is none.
	Oldest time.Time `json:"oldest,omitzero"`
	// Version is the last published version of the policy that the run knows.
	Version int64 `json:"version"`
	Closed  bool  `json:"closed,omitempty"`
}

// Stages are those of a Flight, in the order in which a rollout comes through them.
var Stages = []string{events.StageGenerator, events.StageTools, events.StageScorer, events.StageGroup,
	events.StageFeed, books.StageTrainer}

// Flight is what the events say that were folded so far.
func (f *Fold) Flight() Flight {
	now := Flight{Stages: map[string]int{}, Version: f.run.PolicyVersion, Closed: f.run.Closed}
	for r := range f.run.All() {
		now.Stages[r.Stage]++
		if !r.Scored && (now.Oldest.IsZero() || r.Began.Before(now.Oldest)) {
			now.Oldest = r.Began
		}
	}
	for _, b := range f.ready {
		now.Stages[books.StageTrainer] += b.Samples
	}
	return now
}
