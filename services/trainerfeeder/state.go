package trainerfeeder

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// state is what a feed knows of its run as a whole.
type state struct {
	Ready         int64 `json:"ready"`    // last step that was composed
	Consumed      int64 `json:"consumed"` // last step that the trainer has taken
	PolicyVersion int64 `json:"policy_version"`
	Closed        bool  `json:"closed"`
}

// episode is a rollout whose group is not complete yet.
type episode struct {
	DispatchVersion int64       `json:"dispatch_version"`
	Trajectory      storage.Ref `json:"trajectory"`
	TextOnly        bool        `json:"text_only"`
	Invalid         bool        `json:"invalid"`
}

// member is one trainable rollout of a pending group.
type member struct {
	Rollout    string      `json:"rollout"`
	Reward     float64     `json:"reward"`
	Advantage  float64     `json:"advantage"`
	Trajectory storage.Ref `json:"trajectory"`
	// Skip says why the member cannot be trained on; "" for the others.
	Skip string `json:"skip,omitempty"`
}

// pending is a completed group that waits for its batch.
type pending struct {
	ID              string   `json:"id"`
	Task            string   `json:"task"`
	Mean            float64  `json:"mean"`
	DispatchVersion int64    `json:"dispatch_version"`
	Members         []member `json:"members"`
}

// Keys of the projection. A group's entries go when it is batched or dropped.
const (
	stateKey = "state"
	episodes = "rollout/"
	waiting  = "group/" // by the sequence of group_completed, so that the oldest comes first
	placeOf  = "place/" // group id → its sequence among the waiting
)

// Apply folds one event.
func (d *Decider) Apply(tx *projection.Tx, e events.Event) error {
	switch e.Type {
	case events.RunClosedType, events.WeightsPublishedType, events.BatchReadyType, events.BatchConsumedType, events.BatchRewoundType:
		return d.applyProgress(tx, e)
	case events.RolloutStartedType:
		started, err := events.Data[events.RolloutStarted](e)
		if err != nil {
			return err
		}
		return projection.Put(tx, episodes+e.Entity, episode{DispatchVersion: started.PolicyVersion})
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		if err != nil {
			return err
		}
		return change(tx, episodes+e.Entity, func(r *episode) { r.Trajectory, r.TextOnly = scored.Trajectory, scored.TextOnly })
	case events.RolloutFailedType:
		return tx.Delete(episodes + e.Entity)
	case events.RolloutInvalidatedType:
		return applyInvalidated(tx, e)
	case events.GroupCompletedType:
		return applyCompleted(tx, e)
	case events.GroupDroppedType:
		dropped, err := events.Data[events.GroupDropped](e)
		if err != nil || dropped.Feed != d.feed.Name {
			return err
		}
		return remove(tx, e.Entity)
	}
	return nil
}

// applyProgress folds what moves the feed itself.
func (d *Decider) applyProgress(tx *projection.Tx, e events.Event) error {
	s, _, err := projection.Get[state](tx, stateKey)
	if err != nil || (e.Type.Kind() == events.BatchReadyType.Kind() && e.Entity != d.feed.Name) {
		return err
	}
	switch e.Type {
	case events.RunClosedType:
		s.Closed = true
	case events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		if err != nil {
			return err
		}
		s.PolicyVersion = max(s.PolicyVersion, published.Version)
	case events.BatchReadyType:
		ready, err := events.Data[events.BatchReady](e)
		if err != nil {
			return err
		}
		s.Ready = ready.Step
		for _, g := range ready.Groups {
			if err := remove(tx, g); err != nil {
				return err
			}
		}
	case events.BatchConsumedType:
		consumed, err := events.Data[events.BatchConsumed](e)
		if err != nil {
			return err
		}
		s.Consumed = max(s.Consumed, min(consumed.Step, s.Ready))
	case events.BatchRewoundType:
		rewound, err := events.Data[events.BatchRewound](e)
		if err != nil {
			return err
		}
		s.Consumed = min(s.Consumed, rewound.ToStep)
	}
	return projection.Put(tx, stateKey, s)
}

// applyCompleted moves the members' details from their episodes into the waiting group.
func applyCompleted(tx *projection.Tx, e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	g := pending{ID: e.Entity, Task: completed.Task, Mean: completed.Mean}
	for _, m := range completed.Members {
		r, known, err := projection.Get[episode](tx, episodes+m.Rollout)
		if err != nil {
			return err
		}
		if err := tx.Delete(episodes + m.Rollout); err != nil {
			return err
		}
		if m.Failed || !known {
			continue
		}
		g.DispatchVersion = r.DispatchVersion // all members carry the group's
		g.Members = append(g.Members, member{Rollout: m.Rollout, Reward: m.Reward, Advantage: m.Advantage, Trajectory: r.Trajectory, Skip: skip(r)})
	}
	if len(g.Members) == 0 {
		return nil // every member failed: there is nothing to train, and nothing to drop
	}
	place := events.StepKey(int64(e.Seq))
	if err := projection.Put(tx, placeOf+g.ID, place); err != nil {
		return err
	}
	return projection.Put(tx, waiting+place, g)
}

func skip(r episode) string {
	switch {
	case r.Invalid:
		return "invalidated"
	case r.TextOnly:
		return "no token ids"
	}
	return ""
}

func applyInvalidated(tx *projection.Tx, e events.Event) error {
	if err := change(tx, episodes+e.Entity, func(r *episode) { r.Invalid = true }); err != nil {
		return err
	}
	place, ok, err := projection.Get[string](tx, placeOf+events.GroupOf(e.Entity))
	if !ok || err != nil {
		return err
	}
	return change(tx, waiting+place, func(g *pending) {
		for i := range g.Members {
			if g.Members[i].Rollout == e.Entity {
				g.Members[i].Skip = "invalidated"
			}
		}
	})
}

// remove forgets a waiting group.
func remove(tx *projection.Tx, group string) error {
	place, ok, err := projection.Get[string](tx, placeOf+group)
	if !ok || err != nil {
		return err
	}
	if err := tx.Delete(placeOf + group); err != nil {
		return err
	}
	return tx.Delete(waiting + place)
}

// change edits an entry where there is one.
func change[T any](tx *projection.Tx, key string, edit func(*T)) error {
	v, ok, err := projection.Get[T](tx, key)
	if !ok || err != nil {
		return err
	}
	edit(&v)
	return projection.Put(tx, key, v)
}
