package trainerfeeder

import (
	"errors"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Apply folds one event.
func (d *Decider) Apply(tx *projection.Tx, e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		return begin(tx, e)
	case events.RunClosedType, events.WeightsPublishedType, events.BatchReadyType, events.BatchConsumedType,
		events.BatchRewoundType:
		return d.applyProgress(tx, e)
	case events.GroupOpenedType, events.GroupCompletedType, events.GroupDroppedType:
		return d.applyGroup(tx, e)
	}
	if e.Type.Kind() == events.RolloutStartedType.Kind() {
		return d.applyRollout(tx, e)
	}
	return nil
}

// begin begins at the policy's version.
func begin(tx *projection.Tx, e events.Event) error {
	opened, err := events.Data[events.RunOpened](e)
	if err != nil || opened.BeginsAt() == 0 {
		return err
	}
	return projection.Put(tx, stateKey, state{PolicyVersion: opened.BeginsAt()})
}

// applyProgress folds what moves the feed itself.
func (d *Decider) applyProgress(tx *projection.Tx, e events.Event) error {
	s, _, err := projection.Get[state](tx, stateKey)
	if err != nil || (e.Type.Kind() == events.BatchReadyType.Kind() && e.Entity != d.feed.Name) {
		return err
	}
	s.Moved = e.Seq
	switch e.Type {
	case events.RunClosedType:
		s.Closed = true
	case events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		if err != nil {
			return err
		}
		s.PolicyVersion = max(s.PolicyVersion, published.Version)
		if published.Run == d.run {
			s.ThroughStep = max(s.ThroughStep, published.ThroughStep)
		}
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

// noteChange notes that a decision may follow from an event.
func noteChange(tx *projection.Tx, e events.Event) error {
	s, _, err := projection.Get[state](tx, stateKey)
	if err != nil {
		return err
	}
	s.Moved = e.Seq
	return projection.Put(tx, stateKey, s)
}

// applyRollout folds what happens to one rollout before its group is complete, and what is said
// about it until it is batched.
func (d *Decider) applyRollout(tx *projection.Tx, e events.Event) error {
	switch e.Type {
	case events.RolloutStartedType:
		started, err := events.Data[events.RolloutStarted](e)
		if err != nil {
			return err
		}
		if err := d.countMember(tx, e, func(f *openGroup) { f.Started++ }); err != nil {
			return err
		}
		r := episode{outcome: outcome{Version: started.PolicyVersion}}
		r.Progress.Apply(e)
		return projection.Put(tx, episodes+e.Entity, r)
	case events.RolloutFinishedType:
		finished, err := events.Data[events.RolloutFinished](e)
		if err != nil {
			return err
		}
		return change(tx, episodes+e.Entity, func(r *episode) {
			r.Progress.Apply(e)
			r.Stop, r.Tokens, r.Misfit, r.Unasked = finished.StopReason, int64(finished.Tokens), finished.Misfit(),
				finished.Turns == 0 && !finished.Misfit()
			r.Unsampled, r.Masked, r.Constrained = finished.Unsampled(), finished.OnlyMasked(),
				finished.OnlyConstrained()
			r.Oldest, r.Unknown = min(r.Version, finished.MinVersion), finished.UnknownVersions > 0
		})
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		if err != nil {
			return err
		}
		if err := d.countMember(tx, e, func(f *openGroup) { f.Ended++ }); err != nil {
			return err
		}
		return change(tx, episodes+e.Entity, func(r *episode) {
			r.Progress.Apply(e)
			r.Trajectory, r.TextOnly, r.Components = scored.Trajectory, scored.TextOnly, scored.Components
		})
	case events.RolloutFailedType:
		if err := d.countMember(tx, e, func(f *openGroup) { f.Ended++ }); err != nil {
			return err
		}
		return forget(tx, e.Entity)
	case events.RolloutInvalidatedType:
		return applyInvalidated(tx, e)
	case events.RolloutAnnotatedType:
		return applyAnnotated(tx, e)
	case events.RolloutHintedType:
		return d.applyHinted(tx, e)
	case events.TeacherScoredType:
		return d.applyTeacher(tx, e)
	}
	return nil
}

// applyGroup folds a group's beginning and end.
func (d *Decider) applyGroup(tx *projection.Tx, e events.Event) error {
	switch e.Type {
	case events.GroupOpenedType:
		if !d.waits() {
			return nil
		}
		opened, err := events.Data[events.GroupOpened](e)
		if err != nil {
			return err
		}
		return projection.Put(tx, flights+e.Entity, openGroup{Version: opened.PolicyVersion,
			Opened: e.Seq, Size: opened.Size})
	case events.GroupCompletedType:
		return d.applyCompleted(tx, e)
	}
	dropped, err := events.Data[events.GroupDropped](e)
	if err != nil || dropped.Feed != d.feed.Name {
		return err
	}
	return remove(tx, e.Entity)
}

// applyCompleted moves the members' details from their episodes into the waiting group.
func (d *Decider) applyCompleted(tx *projection.Tx, e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	if err := tx.Delete(flights + e.Entity); err != nil {
		return err
	}
	g := pending{ID: e.Entity, Mean: completed.Mean, Completed: e.Seq, Until: d.waitEnd(e)}
	for i, m := range completed.Members {
		r, _, err := projection.Get[episode](tx, episodes+m.Rollout)
		if err != nil {
			return err
		}
		if err := tx.Delete(episodes + m.Rollout); err != nil {
			return err
		}
		if !r.Scored {
			if err := forget(tx, m.Rollout); err != nil {
				return err
			}
			continue
		}
		if len(g.Members) == 0 {
			g.DispatchVersion, g.Oldest = r.Version, r.Oldest
		}
		g.DispatchVersion, g.Oldest = min(g.DispatchVersion, r.Version), min(g.Oldest, r.Oldest)
		r.Invalid = r.Invalidated
		g.Members = append(g.Members, member{Rollout: m.Rollout, Index: i, Compared: !m.Failed, Reward: m.Reward,
			Shaped: m.Shaped, Advantage: m.Advantage, outcome: r.outcome})
	}
	if err := noteChange(tx, e); err != nil || g.compared() == 0 {
		// Where every member failed or was invalidated there is nothing to
		// train, and nothing to drop.
		return errors.Join(err, forgetAll(tx, g))
	}
	place := d.place(g, e.Seq)
	if err := projection.Put(tx, placeOf+g.ID, place); err != nil {
		return err
	}
	return projection.Put(tx, waiting+place, g)
}

// place orders the waiting groups: as they were completed, or for a feed that waits by the version
// that they were dispatched with.
func (d *Decider) place(g pending, seq uint64) string {
	place := events.StepKey(int64(seq))
	if d.waits() {
		return events.StepKey(g.DispatchVersion) + "/" + place
	}
	return place
}

func applyInvalidated(tx *projection.Tx, e events.Event) error {
	if err := change(tx, episodes+e.Entity, func(r *episode) { r.Progress.Apply(e) }); err != nil {
		return err
	}
	place, ok, err := projection.Get[string](tx, placeOf+events.GroupOf(e.Entity))
	if !ok || err != nil {
		return err
	}
	if err := noteChange(tx, e); err != nil {
		return err
	}
	return change(tx, waiting+place, func(g *pending) {
		for i := range g.Members {
			if g.Members[i].Rollout == e.Entity {
				g.Members[i].Invalid = true
			}
		}
	})
}

// applyAnnotated keeps a remark about a rollout that may still be batched.
func applyAnnotated(tx *projection.Tx, e events.Event) error {
	if may, err := mayBeBatched(tx, e.Entity); !may || err != nil {
		return err
	}
	annotated, err := events.Data[events.RolloutAnnotated](e)
	if err != nil {
		return err
	}
	r, _, err := projection.Get[remarks](tx, remarked+e.Entity)
	if err != nil {
		return err
	}
	if r.Bytes+len(e.Data) > maxRemarks {
		r.Left++
	} else {
		r.Notes, r.Bytes = append(r.Notes, annotated), r.Bytes+len(e.Data)
	}
	return projection.Put(tx, remarked+e.Entity, r)
}

func mayBeBatched(tx *projection.Tx, rollout string) (bool, error) {
	if _, open, err := projection.Get[episode](tx, episodes+rollout); open || err != nil {
		return open, err
	}
	place, ok, err := projection.Get[string](tx, placeOf+events.GroupOf(rollout))
	if !ok || err != nil {
		return false, err
	}
	g, _, err := projection.Get[pending](tx, waiting+place)
	return slices.ContainsFunc(g.Members, func(m member) bool { return m.Rollout == rollout }), err
}

// remove forgets a waiting group.
func remove(tx *projection.Tx, group string) error {
	place, ok, err := projection.Get[string](tx, placeOf+group)
	if !ok || err != nil {
		return err
	}
	g, _, err := projection.Get[pending](tx, waiting+place)
	if err != nil {
		return err
	}
	if err := forgetAll(tx, g); err != nil {
		return err
	}
	if err := tx.Delete(placeOf + group); err != nil {
		return err
	}
	return tx.Delete(waiting + place)
}

func forgetAll(tx *projection.Tx, g pending) error {
	for _, m := range g.Members {
		if err := forget(tx, m.Rollout); err != nil {
			return err
		}
	}
	return nil
}

// forget removes a rollout that will not be batched any more.
func forget(tx *projection.Tx, rollout string) error {
	return errors.Join(tx.Delete(episodes+rollout), tx.Delete(remarked+rollout), tx.Delete(hinted+rollout))
}

// countMember counts a member of an open group, for a feed that waits for them.
func (d *Decider) countMember(tx *projection.Tx, e events.Event, count func(*openGroup)) error {
	if !d.waits() {
		return nil
	}
	return errors.Join(noteChange(tx, e), change(tx, flights+events.GroupOf(e.Entity), count))
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
