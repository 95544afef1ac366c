// Package ledger keeps the books of a run: for every feed, every rollout is in exactly one of trained, stale,
// filtered, failed and in flight.
package ledger

import (
	"maps"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Ledger folds a run's events. Its size grows with the rollouts of the run.
type Ledger struct {
	Run    string
	Config runfile.RunConfig
	Closed bool
	Events int64
	Groups int64
	// PolicyVersion is the last one that the run was told of, or the one that it pins.
	PolicyVersion int64
	// Continues is what the run has taken along of another one.
	Continues  *events.Continued
	LastSeq    uint64
	rollouts   map[string]*Rollout
	order      []string // rollouts in the order of their starts
	groups     map[string]*Group
	groupOrder []string // groups in the order of their openings
	feeds      map[string]*feed
}

type feed struct {
	export   bool
	consumed int64
	batches  []events.BatchReady
	batched  map[string]int64  // group → step
	member   map[string]bool   // rollout → stands in its group's batch
	masked   map[string]string // rollout → why it does not
	dropped  map[string]drop
	gaps     map[int64]events.LogprobGap // step → what its trainer stated
	stale    map[int64]map[string]bool   // step → rollouts of its batch that the trainer left out
}

// drop is why a feed does not train on a group.
type drop struct {
	outcome Outcome
	reason  string
}

// New makes an empty ledger.
func New(run string) *Ledger {
	return &Ledger{Run: run, rollouts: map[string]*Rollout{}, groups: map[string]*Group{}, feeds: map[string]*feed{}}
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
		l.Continues, l.PolicyVersion = opened.Continues, opened.BeginsAt()
		for _, f := range l.Config.Feeds {
			l.feed(f.Name).export = f.MinReward != nil
		}
		if pinned := l.Config.PolicyVersion; pinned != nil {
			l.PolicyVersion = *pinned
		}
	case events.RunClosedType:
		l.Closed = true
	case events.GroupOpenedType:
		err = l.opened(e)
	case events.GroupCompletedType:
		err = l.completed(e)
	case events.GroupDroppedType:
		err = l.dropped(e)
	case events.BatchReadyType, events.BatchConsumedType, events.BatchRewoundType:
		err = l.batch(e)
	case events.WeightsPublishedType:
		var published events.WeightsPublished
		published, err = events.Data[events.WeightsPublished](e)
		if l.Config.PolicyVersion == nil {
			l.PolicyVersion = max(l.PolicyVersion, published.Version)
		}
	default:
		if e.Type.Kind() == events.RolloutStartedType.Kind() {
			err = l.happened(e)
		}
	}
	return err
}

func (l *Ledger) completed(e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	g := l.group(e.Entity)
	g.Completed, g.Estimator, g.Mean = true, completed.Estimator, completed.Mean
	for _, m := range completed.Members {
		r := l.rollout(m.Rollout)
		r.masked, r.Stage, r.Advantage = m.Failed, events.StageFeed, m.Advantage
	}
	return err
}

func (l *Ledger) dropped(e events.Event) error {
	dropped, err := events.Data[events.GroupDropped](e)
	if err != nil {
		return err
	}
	d := drop{Filtered, dropped.Filter}
	if dropped.Reason == events.DropStale {
		d.outcome = Stale
	}
	if d.reason == "" {
		d.reason = dropped.Reason
	}
	l.feed(dropped.Feed).dropped[e.Entity] = d
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
		maps.Copy(f.masked, ready.Masked)
	case events.BatchConsumedType:
		consumed, err := events.Data[events.BatchConsumed](e)
		if err != nil {
			return err
		}
		f.consumed = max(f.consumed, consumed.Step)
		f.gap(consumed)
		f.leftOut(consumed)
	case events.BatchRewoundType:
		rewound, err := events.Data[events.BatchRewound](e)
		if err != nil {
			return err
		}
		f.consumed = min(f.consumed, rewound.ToStep)
		maps.DeleteFunc(f.stale, func(step int64, _ map[string]bool) bool { return step > rewound.ToStep })
	}
	return nil
}

// leftOut takes in which rollouts a trainer did not train on. A statement without any may only bring what was measured later.
func (f *feed) leftOut(consumed events.BatchConsumed) {
	if len(consumed.Stale) == 0 {
		return
	}
	named := map[string]bool{}
	for _, id := range consumed.Stale {
		named[id] = true
	}
	f.stale[consumed.Step] = named
}

func (l *Ledger) feed(name string) *feed {
	f := l.feeds[name]
	if f == nil {
		f = &feed{batched: map[string]int64{}, member: map[string]bool{}, masked: map[string]string{}, dropped: map[string]drop{},
			stale: map[int64]map[string]bool{}}
		l.feeds[name] = f
	}
	return f
}

// Batches lists a feed's batches in the order of their steps.
func (l *Ledger) Batches(feedName string) []events.BatchReady { return l.feed(feedName).batches }

// Consumed is the last step that a feed's trainer has taken.
func (l *Ledger) Consumed(feedName string) int64 { return l.feed(feedName).consumed }
