// Package trainerfeeder composes the batches of each feed from completed groups, and says which groups a
// feed will not train on.
package trainerfeeder

import (
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// ahead is how many batches may be ready that the trainer has not taken: one, so that its next batch is
// there when it asks, and none grows stale behind it.
const ahead = 1

// Decider folds groups and a feed's progress, and decides batch_ready and group_dropped.
type Decider struct {
	run   string
	cfg   events.RunConfig
	feed  events.Feed
	store storage.Store
}

// NewDecider makes the decider of one feed. The store is only used to complete a decided batch.
func NewDecider(run string, cfg events.RunConfig, feed events.Feed, store storage.Store) *Decider {
	return &Decider{run: run, cfg: cfg, feed: feed, store: store}
}

// Decide drops what can no longer be trained and composes the next batch when enough groups wait.
func (d *Decider) Decide(v projection.View, _ uint64, _ time.Time) ([]events.Event, time.Time, error) {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil {
		return nil, time.Time{}, err
	}
	var facts []events.Event
	var fresh []pending
	room := s.Ready < s.Consumed+ahead && !s.Closed
	for g, err := range projection.Scan[pending](v, waiting) {
		if err != nil {
			return nil, time.Time{}, err
		}
		if drop, ok := d.drop(g, s); ok {
			fact, err := events.New(d.run, events.GroupDroppedType, g.ID, d.feed.Name, drop)
			if err != nil {
				return nil, time.Time{}, err
			}
			facts = append(facts, fact)
			continue
		}
		if fresh = append(fresh, g); len(fresh) == d.feed.GroupsPerBatch {
			break // newer groups are judged when their turn comes
		}
	}
	if !room || len(fresh) < d.feed.GroupsPerBatch {
		return facts, time.Time{}, nil
	}
	ready := compose(fresh, s)
	fact, err := events.New(d.run, events.BatchReadyType, d.feed.Name, events.Ordinal(ready.Step), ready)
	return append(facts, fact), time.Time{}, err
}

// drop says whether a waiting group can no longer be trained, and why.
func (d *Decider) drop(g pending, s state) (events.GroupDropped, bool) {
	dropped := events.GroupDropped{Feed: d.feed.Name}
	staleness := s.PolicyVersion - g.DispatchVersion
	switch {
	case trainable(g) == 0:
		dropped.Reason, dropped.Detail = events.DropFiltered, "no member can be trained on: "+g.Members[0].Skip
	case staleness > d.cfg.Staleness.Max:
		dropped.Reason, dropped.Staleness = events.DropStale, staleness
		dropped.Detail = fmt.Sprintf("%d policy versions old, at most %d are allowed", staleness, d.cfg.Staleness.Max)
	case s.Closed:
		dropped.Reason, dropped.Detail = events.DropStale, "the run was closed before the group was batched"
	default:
		return dropped, false
	}
	return dropped, true
}

func trainable(g pending) (n int) {
	for _, m := range g.Members {
		if m.Skip == "" {
			n++
		}
	}
	return n
}

// compose makes the next batch of whole groups, oldest first.
func compose(groups []pending, s state) events.BatchReady {
	ready := events.BatchReady{Step: s.Ready + 1, MinVersion: groups[0].DispatchVersion}
	var rewards float64
	var scored int
	for _, g := range groups {
		ready.Groups = append(ready.Groups, g.ID)
		ready.MinVersion = min(ready.MinVersion, g.DispatchVersion)
		rewards += g.Mean * float64(len(g.Members))
		scored += len(g.Members)
		for _, m := range g.Members {
			if m.Skip == "" {
				ready.Rollouts = append(ready.Rollouts, m.Rollout)
			}
		}
	}
	ready.RewardMean = rewards / float64(scored)
	ready.Staleness = s.PolicyVersion - ready.MinVersion
	return ready
}
