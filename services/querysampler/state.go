package querysampler

import (
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// state is what the sampler knows of the run as a whole.
type state struct {
	Opened bool  `json:"opened"`
	Paused bool  `json:"paused"`
	Closed bool  `json:"closed"`
	Pauses int64 `json:"pauses"` // so far
	Groups int64 `json:"groups"` // opened so far
	// Uncovered counts groups that no weights_published{through_step} covers yet and that may still be trained.
	Uncovered int64 `json:"uncovered"`
	// Useful counts groups that were, or may still be, batched.
	Useful        int64 `json:"useful"`
	PolicyVersion int64 `json:"policy_version"`
	ThroughStep   int64 `json:"through_step"`
	Bytes         int64 `json:"bytes"`
}

// group is a group whose members are not all started yet.
type group struct {
	ID            string `json:"id"`
	Task          string `json:"task"`
	PolicyVersion int64  `json:"policy_version"`
	Started       int    `json:"started"`
}

// inFlight is a rollout without an outcome.
type inFlight struct {
	ID       string    `json:"id"`
	Deadline time.Time `json:"deadline"`
}

// batch is a batch that no published weights cover yet.
type batch struct {
	Step   int64    `json:"step"`
	Groups []string `json:"groups"`
}

// Keys of the projection. All but the state itself shrink again when what they describe is over.
const (
	stateKey  = "state"
	halfOpen  = "group/"
	flying    = "rollout/"
	uncovered = "batch/"
	counted   = "counted/" // group → whether it is batched, for the groups in Uncovered
)

// claimCheck is what the reference to a large body takes, in bytes: the body itself is in the store.
const claimCheck = 256

// Apply folds one event.
func (d *Decider) Apply(tx *projection.Tx, e events.Event) error {
	s, _, err := projection.Get[state](tx, stateKey)
	if err != nil {
		return err
	}
	body := len(e.Data)
	if body > events.MaxPayload {
		body = claimCheck
	}
	s.Bytes += int64(body) + eventOverhead
	if err := d.apply(tx, &s, e); err != nil {
		return err
	}
	return projection.Put(tx, stateKey, s)
}

func (d *Decider) apply(tx *projection.Tx, s *state, e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		s.Opened = true
	case events.RunPausedType:
		s.Paused = true
		s.Pauses++
	case events.RunResumedType:
		s.Paused = false
	case events.RunClosedType:
		s.Closed = true
	case events.GroupOpenedType:
		return applyOpened(tx, s, e)
	case events.RolloutStartedType:
		return d.applyStarted(tx, e)
	case events.RolloutScoredType, events.RolloutFailedType:
		return tx.Delete(flying + e.Entity)
	case events.GroupCompletedType:
		return applyCompleted(tx, s, e)
	case events.GroupDroppedType:
		return d.applyDropped(tx, s, e)
	case events.BatchReadyType:
		return d.applyReady(tx, s, e)
	case events.WeightsPublishedType:
		return d.applyPublished(tx, s, e)
	}
	return nil
}

func applyOpened(tx *projection.Tx, s *state, e events.Event) error {
	opened, err := events.Data[events.GroupOpened](e)
	if err != nil {
		return err
	}
	s.Groups++
	if err := count(tx, s, e.Entity, false); err != nil {
		return err
	}
	return projection.Put(tx, halfOpen+e.Entity, group{ID: e.Entity, Task: opened.Task, PolicyVersion: opened.PolicyVersion})
}

func (d *Decider) applyStarted(tx *projection.Tx, e events.Event) error {
	started, err := events.Data[events.RolloutStarted](e)
	if err != nil {
		return err
	}
	if err := projection.Put(tx, flying+e.Entity, inFlight{ID: e.Entity, Deadline: started.Deadline}); err != nil {
		return err
	}
	g, ok, err := projection.Get[group](tx, halfOpen+started.Group)
	if !ok || err != nil {
		return err
	}
	if g.Started = started.Member + 1; g.Started >= d.cfg.GroupSize {
		return tx.Delete(halfOpen + started.Group)
	}
	return projection.Put(tx, halfOpen+started.Group, g)
}

// count counts a group, once, as one that may be trained.
func count(tx *projection.Tx, s *state, group string, batched bool) error {
	_, known, err := projection.Get[bool](tx, counted+group)
	if err != nil {
		return err
	}
	if !known {
		s.Uncovered++
		s.Useful++
	}
	return projection.Put(tx, counted+group, batched)
}

// giveBack gives the place of a group back that will not be trained. A drop that raced with a batch of the group is
// void.
func giveBack(tx *projection.Tx, s *state, group string) error {
	batched, known, err := projection.Get[bool](tx, counted+group)
	if err != nil || !known || batched {
		return err
	}
	s.Uncovered--
	s.Useful--
	return tx.Delete(counted + group)
}

// applyCompleted gives the place of a group without any survivor back: nothing of it will be trained.
func applyCompleted(tx *projection.Tx, s *state, e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	for _, m := range completed.Members {
		if !m.Failed {
			return nil
		}
	}
	return giveBack(tx, s, e.Entity)
}

func (d *Decider) applyDropped(tx *projection.Tx, s *state, e events.Event) error {
	dropped, err := events.Data[events.GroupDropped](e)
	if err != nil || dropped.Feed != d.cfg.Feeds[0].Name {
		return err
	}
	return giveBack(tx, s, e.Entity)
}

func (d *Decider) applyReady(tx *projection.Tx, s *state, e events.Event) error {
	if e.Entity != d.cfg.Feeds[0].Name {
		return nil
	}
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	for _, g := range ready.Groups {
		if err := count(tx, s, g, true); err != nil {
			return err
		}
	}
	return projection.Put(tx, uncovered+events.StepKey(ready.Step), batch{Step: ready.Step, Groups: ready.Groups})
}

func (d *Decider) applyPublished(tx *projection.Tx, s *state, e events.Event) error {
	published, err := events.Data[events.WeightsPublished](e)
	if err != nil {
		return err
	}
	s.PolicyVersion = max(s.PolicyVersion, published.Version)
	if published.Run != d.run {
		return nil
	}
	s.ThroughStep = max(s.ThroughStep, published.ThroughStep)
	for b, err := range projection.Scan[batch](tx, uncovered) {
		if err != nil || b.Step > published.ThroughStep {
			return err
		}
		s.Uncovered -= int64(len(b.Groups))
		for _, g := range b.Groups {
			if err := tx.Delete(counted + g); err != nil {
				return err
			}
		}
		if err := tx.Delete(uncovered + events.StepKey(b.Step)); err != nil {
			return err
		}
	}
	return nil
}
