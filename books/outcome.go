package books

import (
	"cmp"

	"github.com/rondo-rl/rondo/events"
)

// Outcome is where a rollout is, for one feed.
type Outcome string

// The outcomes. Invalidated is a flag on top, not an outcome.
const (
	InFlight Outcome = "in_flight"
	Trained  Outcome = "trained"
	Stale    Outcome = "stale"
	Filtered Outcome = "filtered"
	Failed   Outcome = "failed"
)

// StageTrainer is the stage behind events.StageFeed: the trainer that takes the batch.
const StageTrainer = "trainer"

// NoFeed is the feed of an evaluation without feeds: its books have one side, on which no rollout
// is trained.
const NoFeed = ""

// Reasons that no fact spells out.
const (
	// ReasonEvaluated: the rollout was scored in a run that has no feeds to train on it.
	ReasonEvaluated   = "evaluated"
	reasonInvalidated = "invalidated"
	reasonMasked      = "not in the batch"
	reasonTrainer     = "left out by the trainer"
)

// Entry is a rollout in the books of one feed.
type Entry struct {
	Outcome Outcome
	// Reason tells rollouts of one outcome apart: the filter or the mask, the class of a failure;
	// "" for most.
	Reason string
	// Stage has the rollout, or was the last that had it.
	Stage string
}

// Outcome is where a rollout is, for a feed.
func (l *Run) Outcome(feedName, id string) Outcome { return l.Entry(feedName, id).Outcome }

// Entry is where a rollout is, for a feed, and why.
func (l *Run) Entry(feedName, id string) Entry {
	f := l.feed(feedName)
	group := events.GroupOf(id)
	step, batched := f.batched[group]
	r := l.rollouts[id]
	if r == nil {
		r = &Rollout{} // one that was never started has no entry in the books
	}
	switch {
	case r.Failed:
		return Entry{Failed, r.Class, r.FailedStage}
	case f.member[id] && step <= f.consumed && f.stale[step][id]:
		return Entry{Stale, reasonTrainer, StageTrainer}
	case f.member[id] && (step <= f.consumed || f.export): // nobody needs to take an export
		return Entry{Trained, "", StageTrainer}
	case f.member[id]:
		return Entry{InFlight, "", StageTrainer}
	case r.Member.Failed:
		return Entry{Filtered, reasonInvalidated, events.StageGroup} // before its group was complete
	case feedName == NoFeed && r.Stage == events.StageFeed:
		return Entry{Filtered, ReasonEvaluated, events.StageGroup}
	case batched:
		return Entry{Filtered, cmp.Or(f.masked[id], reasonMasked), events.StageFeed}
	}
	// A drop that raced with a batch of the same group is void: what is in a batch is trained.
	d, dropped := f.dropped[group]
	switch reason := cmp.Or(d.Filter, d.Reason); {
	case !dropped:
		return Entry{InFlight, "", r.Stage}
	case d.Reason == events.DropStale:
		return Entry{Stale, reason, events.StageFeed}
	default:
		return Entry{Filtered, reason, events.StageFeed}
	}
}

// AtRest reports whether the run is closed and all that is left to happen is that trainers take
// their batches.
func (l *Run) AtRest() bool {
	if !l.Closed {
		return false
	}
	for _, feed := range l.Feeds() {
		for r := range l.All() {
			if e := l.Entry(feed, r.ID); e.Outcome == InFlight && e.Stage != StageTrainer {
				return false
			}
		}
	}
	return true
}
