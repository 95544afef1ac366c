package checker

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// batch checks a feed's steps, and a batch's file against its fact.
func (c *Checker) batch(e events.Event) error {
	if e.Type != events.BatchReadyType {
		return nil
	}
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		c.find(RuleBatch, e, "%v", err)
		return nil
	}
	if want := c.steps[e.Entity] + 1; ready.Step != want {
		c.find(RuleBatch, e, "step %d instead of %d", ready.Step, want)
	}
	c.steps[e.Entity] = ready.Step
	if c.batched[e.Entity] == nil {
		c.batched[e.Entity] = map[string]int64{}
	}
	for _, id := range ready.Rollouts {
		if step, ok := c.batched[e.Entity][id]; ok {
			c.find(RuleBatch, e, "rollout %s stands in step %d already", id, step)
		}
		c.batched[e.Entity][id] = ready.Step
		if r := c.rollouts[id]; r == nil || r.outcome != events.RolloutScoredType {
			c.find(RuleBatch, e, "rollout %s was not scored", id)
		}
	}
	for _, id := range ready.Groups {
		if g := c.groups[id]; g == nil || !g.completed {
			c.find(RuleBatch, e, "group %s is not complete", id)
		}
	}
	return c.batchFile(e, ready)
}

// batchFile checks that the file holds the fact's rollouts, in its order, with the groups' advantages.
func (c *Checker) batchFile(e events.Event, ready events.BatchReady) error {
	if ready.File == nil {
		c.find(RuleBatch, e, "it names no file")
		return nil
	}
	data, err := c.object(e, *ready.File)
	if data == nil {
		return err
	}
	batch, err := storage.DecodeBatch(data)
	if err != nil {
		c.find(RuleObject, e, "%v", err)
		return nil
	}
	advantages := map[string]float64{}
	for _, id := range ready.Groups {
		if g := c.groups[id]; g != nil {
			for _, m := range g.members {
				advantages[m.Rollout] = m.Advantage
			}
		}
	}
	var rollouts []string
	for _, s := range batch.Samples {
		if len(rollouts) == 0 || rollouts[len(rollouts)-1] != s.Rollout {
			rollouts = append(rollouts, s.Rollout)
		}
		for i, trained := range s.LossMask {
			if trained && s.Advantages[i] != float32(advantages[s.Rollout]) {
				c.find(RuleBatch, e, "rollout %s: advantage %g in the file, %g in its group", s.Rollout, s.Advantages[i], advantages[s.Rollout])
				break
			}
		}
	}
	if !slices.Equal(rollouts, ready.Rollouts) || len(batch.Samples) != ready.Samples || batch.Step != ready.Step {
		c.find(RuleBatch, e, "its file holds step %d with %d samples of %v, the fact says step %d with %d of %v",
			batch.Step, len(batch.Samples), rollouts, ready.Step, ready.Samples, ready.Rollouts)
	}
	return nil
}

// references checks every object that a payload names, wherever in it the reference stands.
func (c *Checker) references(e events.Event) error {
	var payload any
	if err := json.Unmarshal(e.Data, &payload); err != nil {
		c.find(RuleIdentity, e, "payload: %v", err)
		return nil
	}
	return c.walk(e, payload)
}

func (c *Checker) walk(e events.Event, v any) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if err := c.walk(e, item); err != nil {
				return err
			}
		}
	case map[string]any:
		if ref, ok := reference(v); ok {
			_, err := c.object(e, ref)
			return err
		}
		for _, item := range v {
			if err := c.walk(e, item); err != nil {
				return err
			}
		}
	}
	return nil
}

func reference(v map[string]any) (storage.Ref, bool) {
	key, isKey := v["ref"].(string)
	digest, isDigest := v["sha256"].(string)
	size, isSize := v["size"].(float64)
	return storage.Ref{Key: key, SHA256: digest, Size: int64(size)}, isKey && isDigest && isSize && len(v) == 3
}

// object fetches a referenced object once and compares its digest. nil data means a finding, or that it was
// looked at before.
func (c *Checker) object(e events.Event, ref storage.Ref) ([]byte, error) {
	id := ref.Key + ref.SHA256
	if c.objects[id] {
		return nil, nil
	}
	c.objects[id] = true
	data, err := storage.GetBlob(c.ctx, c.store, ref)
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrKey) || errors.Is(err, storage.ErrTooLarge):
		c.find(RuleObject, e, "%v", err)
		return nil, nil
	}
	return nil, fmt.Errorf("%s: %w", e.ID, err)
}
