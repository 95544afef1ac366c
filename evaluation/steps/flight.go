package steps

import (
	"time"

	"github.com/rondo-rl/rondo/events"
)

// StageTrainer is the stage of the samples in batches that the trainer has not taken.
const StageTrainer = "trainer"

// Flight is where the rollouts are that have not come to their end.
type Flight struct {
	// Stages counts rollouts by the stage that has them, those behind the verifier too, and samples that wait for the trainer.
	Stages map[string]int `json:"stages"`
	// Oldest is when the oldest rollout without an outcome was started, the zero time where there is none.
	Oldest time.Time `json:"oldest,omitzero"`
	// Version is the last published version of the policy that the run knows.
	Version int64 `json:"version"`
	Closed  bool  `json:"closed,omitempty"`
}

// Stages are those of a Flight, in the order in which a rollout comes through them.
var Stages = []string{events.StageGenerator, events.StageTools, events.StageScorer, events.StageGroup, events.StageFeed, StageTrainer}

// Flight is what the events say that were folded so far.
func (f *Fold) Flight() Flight {
	now := Flight{Stages: map[string]int{}, Version: f.version, Closed: f.closed}
	for _, r := range f.rollouts {
		now.Stages[r.Stage]++
		if !r.Scored && (now.Oldest.IsZero() || r.began.Before(now.Oldest)) {
			now.Oldest = r.began
		}
	}
	for _, b := range f.ready {
		now.Stages[StageTrainer] += b.Samples
	}
	return now
}
