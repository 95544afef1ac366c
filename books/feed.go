package books

import (
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// Batch is a batch of a feed, and the sequence of the event that says so.
type Batch struct {
	events.BatchReady
	Seq uint64
}

type feed struct {
	export   bool
	consumed int64
	batches  []Batch
	batched  map[string]int64  // group → step
	member   map[string]bool   // rollout → stands in its group's batch
	masked   map[string]string // rollout → why it does not
	dropped  map[string]events.GroupDropped
	gaps     map[int64]events.LogprobGap // step → what its trainer stated
	stale    map[int64]map[string]bool   // step → rollouts of its batch that the trainer left out
}

func (l *Run) feed(name string) *feed {
	f := l.feeds[name]
	if f == nil {
		f = &feed{
			batched: map[string]int64{}, member: map[string]bool{}, masked: map[string]string{},
			dropped: map[string]events.GroupDropped{}, gaps: map[int64]events.LogprobGap{},
			stale: map[int64]map[string]bool{},
		}
		l.feeds[name] = f
	}
	return f
}

func (f *feed) batch(e events.Event) error {
	switch e.Type {
	case events.BatchReadyType:
		ready, err := events.Data[events.BatchReady](e)
		if err != nil {
			return err
		}
		f.batches = append(f.batches, Batch{ready, e.Seq})
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
		if consumed.LogprobGap != nil { // the last statement holds, as after a rewind
			f.gaps[consumed.Step] = *consumed.LogprobGap
		}
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

// leftOut takes in which rollouts a trainer did not train on. A statement without any may only
// bring what was measured later.
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

// Feeds lists the run's feeds: those of its configuration in their order, then what else the log
// speaks of. Of an evaluation without feeds it is NoFeed.
func (l *Run) Feeds() []string {
	var names []string
	for _, f := range l.Config.Feeds {
		names = append(names, f.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(l.feeds)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && l.Config.Epochs > 0 {
		return []string{NoFeed}
	}
	return names
}

// FirstFeed is the feed that paces the run, NoFeed where there is none.
func (l *Run) FirstFeed() string {
	if feeds := l.Feeds(); len(feeds) > 0 {
		return feeds[0]
	}
	return NoFeed
}

// Batches lists a feed's batches in the order of their steps.
func (l *Run) Batches(feedName string) []Batch { return l.feed(feedName).batches }

// Consumed is the last step that a feed's trainer has taken.
func (l *Run) Consumed(feedName string) int64 { return l.feed(feedName).consumed }

// Dropped is what a feed has stated of a group that it dropped; ok is false for one that it did
// not.
func (l *Run) Dropped(feedName, group string) (d events.GroupDropped, ok bool) {
	d, ok = l.feed(feedName).dropped[group]
	return d, ok
}

// TrainedAt is the step of a feed whose batch holds a rollout, 0 for none.
func (l *Run) TrainedAt(feedName, id string) int64 {
	if step, member, _ := l.InBatch(feedName, id); member {
		return step
	}
	return 0
}

// InBatch is the step of a feed whose batch holds a rollout's group, 0 for none, whether the
// rollout is trained on in it, and otherwise why not, where the batch says so.
func (l *Run) InBatch(feedName, id string) (step int64, member bool, masked string) {
	f := l.feed(feedName)
	return f.batched[events.GroupOf(id)], f.member[id], f.masked[id]
}
