// Package ledger keeps the books of a run: for every feed, every rollout is in exactly one of trained, stale,
// filtered, failed and in flight.
package ledger

import (
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

// Ledger folds a run's events. Its size grows with the rollouts of the run.
type Ledger struct {
	Run           string
	Config        events.RunConfig
	Closed        bool
	Events        int64
	Groups        int64
	PolicyVersion int64
	LastSeq       uint64
	rollouts      map[string]*rollout
	feeds         map[string]*feed
}

type rollout struct {
	failed, scored, invalidated bool
	// masked: its group was completed without it.
	masked bool
	reward float64
}

type feed struct {
	consumed int64
	batches  []events.BatchReady
	batched  map[string]int64 // group → step
	member   map[string]bool  // rollout → stands in its group's batch
	dropped  map[string]Outcome
}

// New makes an empty ledger.
func New(run string) *Ledger {
	return &Ledger{Run: run, rollouts: map[string]*rollout{}, feeds: map[string]*feed{}}
}

// Apply folds the next event of the run's stream.
func (l *Ledger) Apply(e events.Event) error {
	l.Events++
	l.LastSeq = e.Seq
	var err error
	switch e.Type {
	case events.RunOpenedType:
		var opened events.RunOpened
		opened, err = events.Data[events.RunOpened](e)
		l.Config = opened.Config
		for _, f := range l.Config.Feeds {
			l.feed(f.Name)
		}
	case events.RunClosedType:
		l.Closed = true
	case events.GroupOpenedType:
		l.Groups++
	case events.GroupCompletedType:
		err = l.completed(e)
	case events.GroupDroppedType:
		err = l.dropped(e)
	case events.RolloutStartedType:
		l.rollouts[e.Entity] = &rollout{}
	case events.RolloutScoredType:
		var scored events.RolloutScored
		scored, err = events.Data[events.RolloutScored](e)
		r := l.rollout(e.Entity)
		r.scored, r.reward = true, scored.Reward
	case events.RolloutFailedType:
		l.rollout(e.Entity).failed = true
	case events.RolloutInvalidatedType:
		l.rollout(e.Entity).invalidated = true
	case events.BatchReadyType, events.BatchConsumedType, events.BatchRewoundType:
		err = l.batch(e)
	case events.WeightsPublishedType:
		var published events.WeightsPublished
		published, err = events.Data[events.WeightsPublished](e)
		l.PolicyVersion = max(l.PolicyVersion, published.Version)
	}
	return err
}

func (l *Ledger) completed(e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	for _, m := range completed.Members {
		l.rollout(m.Rollout).masked = m.Failed
	}
	return err
}

func (l *Ledger) dropped(e events.Event) error {
	dropped, err := events.Data[events.GroupDropped](e)
	if err != nil {
		return err
	}
	outcome := Filtered
	if dropped.Reason == events.DropStale {
		outcome = Stale
	}
	l.feed(dropped.Feed).dropped[e.Entity] = outcome
	return nil
}

func (l *Ledger) batch(e events.Event) error {
	f := l.feed(e.Entity)
	switch e.Type {
	case events.BatchReadyType:
		ready, err := events.Data[events.BatchReady](e)
		if err != nil {
			return err
		}
		f.batches = append(f.batches, ready)
		for _, g := range ready.Groups {
			f.batched[g] = ready.Step
		}
		for _, r := range ready.Rollouts {
			f.member[r] = true
		}
	case events.BatchConsumedType:
		consumed, err := events.Data[events.BatchConsumed](e)
		if err != nil {
			return err
		}
		f.consumed = max(f.consumed, consumed.Step)
	case events.BatchRewoundType:
		rewound, err := events.Data[events.BatchRewound](e)
		if err != nil {
			return err
		}
		f.consumed = min(f.consumed, rewound.ToStep)
	}
	return nil
}

// rollout finds a rollout; one that was never started has no entry in the books.
func (l *Ledger) rollout(id string) *rollout {
	if r := l.rollouts[id]; r != nil {
		return r
	}
	return &rollout{}
}

func (l *Ledger) feed(name string) *feed {
	f := l.feeds[name]
	if f == nil {
		f = &feed{batched: map[string]int64{}, member: map[string]bool{}, dropped: map[string]Outcome{}}
		l.feeds[name] = f
	}
	return f
}

// Outcome is where a rollout is, for a feed.
func (l *Ledger) Outcome(feedName, id string) Outcome {
	r, f := l.rollout(id), l.feed(feedName)
	group := events.GroupOf(id)
	step, batched := f.batched[group]
	switch {
	case r.failed:
		return Failed
	case f.member[id] && step <= f.consumed:
		return Trained
	case f.member[id]:
		return InFlight
	case r.masked:
		return Filtered // invalidated before its group was complete
	case batched:
		return Filtered // its group is in a batch, it is not: invalidated, or without token ids
	}
	// A drop that raced with a batch of the same group is void: what stands in a batch is trained.
	if outcome, ok := f.dropped[group]; ok {
		return outcome
	}
	return InFlight
}

// Batches lists a feed's batches in the order of their steps.
func (l *Ledger) Batches(feedName string) []events.BatchReady { return l.feed(feedName).batches }

// Consumed is the last step that a feed's trainer has taken.
func (l *Ledger) Consumed(feedName string) int64 { return l.feed(feedName).consumed }
