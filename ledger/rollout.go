package ledger

import (
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Rollout is what the books know of one rollout, whatever the feed.
type Rollout struct {
	ID, Group, Task string
	PolicyVersion   int64 // at dispatch
	// Seq is the sequence of the verdict or the failure, until then of the start.
	Seq uint64
	// Turns, and of a finished rollout its tokens, those of them that were sampled, and why it stopped.
	Turns, Tokens, Sampled int
	Summaries              int // turns in which it summed its work up
	StopReason             string
	Reward                 float64
	Advantage              float64 // of a member of a completed group that is not masked
	Forfeit                string  // class of events.Forfeit, "" for none
	TaskDigest             string  // of the task as it was scored
	FailedStage, Class     string
	events.Progress

	masked bool // its group was completed without it
}

// happened folds an event of a rollout.
func (l *Ledger) happened(e events.Event) error {
	if e.Type == events.RolloutStartedType {
		return l.started(e)
	}
	r := l.rollout(e.Entity)
	r.Progress.Apply(e)
	switch e.Type {
	case events.RolloutCopiedType:
		copied, err := events.Data[events.RolloutCopied](e)
		r.Turns = len(copied.Turns)
		return err
	case events.TurnSampledType:
		r.Turns++
		if e.Route == runfile.RouteSummary {
			r.Summaries++
		}
	case events.RolloutFinishedType:
		finished, err := events.Data[events.RolloutFinished](e)
		r.Turns, r.Tokens, r.Sampled, r.StopReason = finished.Turns, finished.Tokens, finished.Sampled, finished.StopReason
		return err
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		r.Reward, r.TaskDigest, r.Seq = scored.Reward, scored.TaskDigest, e.Seq
		if scored.Forfeit != nil {
			r.Forfeit = scored.Forfeit.Class
		}
		return err
	case events.RolloutFailedType:
		failed, err := events.Data[events.RolloutFailed](e)
		r.FailedStage, r.Class, r.Seq = failed.Stage, failed.Class, e.Seq
		return err
	}
	return nil
}

func (l *Ledger) started(e events.Event) error {
	if l.rollouts[e.Entity] != nil {
		return nil // a start that stands twice starts nothing again
	}
	started, err := events.Data[events.RolloutStarted](e)
	r := &Rollout{ID: e.Entity, Group: events.GroupOf(e.Entity), Task: started.Task, PolicyVersion: started.PolicyVersion, Seq: e.Seq}
	r.Progress.Apply(e)
	l.rollouts[e.Entity] = r
	l.order = append(l.order, e.Entity)
	g := l.group(r.Group)
	g.Members = append(g.Members, e.Entity)
	return err
}

// rollout finds a rollout; one that was never started has no entry in the books.
func (l *Ledger) rollout(id string) *Rollout {
	if r := l.rollouts[id]; r != nil {
		return r
	}
	return &Rollout{}
}

// All yields the rollouts in the order of their starts.
func (l *Ledger) All() iter.Seq[Rollout] {
	return func(yield func(Rollout) bool) {
		for _, id := range l.order {
			if !yield(*l.rollouts[id]) {
				return
			}
		}
	}
}

// RolloutAt is the rollout at a place in the order of the starts, from 0.
func (l *Ledger) RolloutAt(place int) Rollout { return *l.rollouts[l.order[place]] }

// Find is what the books know of one rollout; ok is false for one that was never started.
func (l *Ledger) Find(id string) (r Rollout, ok bool) {
	if found := l.rollouts[id]; found != nil {
		return *found, true
	}
	return r, false
}

// TrainedAt is the step of a feed whose batch holds a rollout, 0 for none.
func (l *Ledger) TrainedAt(feedName, id string) int64 {
	if f := l.feed(feedName); f.member[id] {
		return f.batched[events.GroupOf(id)]
	}
	return 0
}

// InBatch is the step of a feed whose batch holds a rollout's group, 0 for none, whether the rollout is trained on in it, and otherwise why not, where
// the batch says so.
func (l *Ledger) InBatch(feedName, id string) (step int64, member bool, masked string) {
	f := l.feed(feedName)
	return f.batched[events.GroupOf(id)], f.member[id], f.masked[id]
}
