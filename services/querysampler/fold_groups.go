package querysampler

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// count counts a group, once, as one that may be trained.
func count(tx *projection.Tx, s *state, group string, p capacityUse) error {
	_, known, err := projection.Get[capacityUse](tx, counted+group)
	if err != nil || known {
		return err
	}
	s.Uncovered++
	s.Useful++
	s.Running++
	return projection.Put(tx, counted+group, p)
}

// uncount takes a group out of what is not covered.
func (d *Decider) uncount(tx *projection.Tx, s *state, group string, p capacityUse) error {
	s.Uncovered--
	switch tokens := d.tokens(p); {
	case !p.Complete:
		s.Running--
	case p.Batched:
		s.UncoveredTokens -= tokens
		s.BatchedTokens -= tokens
	default:
		s.UncoveredTokens -= tokens
	}
	return tx.Delete(counted + group)
}

// giveBack gives the place of a group back that will not be trained. A drop that raced with a
// batch of the group is void.
func (d *Decider) giveBack(tx *projection.Tx, s *state, group string) error {
	p, known, err := projection.Get[capacityUse](tx, counted+group)
	if err != nil || !known || p.Batched {
		return err
	}
	s.Useful--
	return d.uncount(tx, s, group, p)
}

// applyCompleted learns from a group, and gives the place of one without any survivor back, and of
// one that no feed waits for: nothing of it will be trained.
func (d *Decider) applyCompleted(tx *projection.Tx, s *state, e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	p, known, err := projection.Get[capacityUse](tx, counted+e.Entity)
	if err != nil {
		return err
	}
	if !p.Forked {
		err = d.applyPassRate(tx, completed)
	}
	if err != nil || !known || p.Complete {
		return err
	}
	if n := len(completed.Members); p.Misfits == n && n > 0 && !events.External(e.Entity) && d.known[completed.Task] {
		if err := noteMisfit(tx, s, completed.Task); err != nil {
			return err
		}
	}
	survivors := 0
	for _, m := range completed.Members {
		if !m.Failed {
			survivors++
			continue
		}
		delete(p.Tokens, m.Rollout)
	}
	if survivors == 0 {
		d.noteFate(s, e.Entity, 'f')
	}
	if survivors == 0 || len(d.cfg.Feeds) == 0 {
		return d.giveBack(tx, s, e.Entity)
	}
	p.Complete = true
	s.Running--
	s.UncoveredTokens += d.tokens(p)
	if d.feed.TokensPerBatch > 0 {
		d.measure(s, d.tokens(p))
		s.Completed = e.Time.UTC()
	}
	return projection.Put(tx, counted+e.Entity, p)
}

func (d *Decider) applyPassRate(tx *projection.Tx, completed events.GroupCompleted) error {
	if d.cfg.Curriculum == nil || !d.known[completed.Task] {
		return nil
	}
	key := passRates + completed.Task
	before, tried, err := projection.Get[float64](tx, key)
	if err != nil {
		return err
	}
	after, ok := passRate(*d.cfg.Curriculum, before, tried, completed.Members)
	if !ok {
		return nil
	}
	return projection.Put(tx, key, after)
}

func (d *Decider) applyDropped(tx *projection.Tx, s *state, e events.Event) error {
	dropped, err := events.Data[events.GroupDropped](e)
	if err != nil || dropped.Feed != d.feed.Name {
		return err
	}
	if p, known, err := projection.Get[capacityUse](tx, counted+e.Entity); err != nil {
		return err
	} else if known && !p.Batched {
		d.noteFate(s, e.Entity, fateOf(dropped))
	}
	return d.giveBack(tx, s, e.Entity)
}

func (d *Decider) applyReady(tx *projection.Tx, s *state, e events.Event) error {
	if e.Entity != d.feed.Name {
		return nil
	}
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	s.Ready = max(s.Ready, ready.Step)
	s.Batches++
	for _, g := range ready.Groups {
		if err := count(tx, s, g, capacityUse{}); err != nil { // a drop that raced with the batch came first
			return err
		}
		p, _, err := projection.Get[capacityUse](tx, counted+g)
		if err != nil {
			return err
		}
		if !p.Complete {
			s.Running--
		}
		if !p.Batched {
			d.noteFate(s, g, batched)
			s.BatchedTokens += d.tokens(p)
		}
		p.Complete, p.Batched = true, true
		if err := projection.Put(tx, counted+g, p); err != nil {
			return err
		}
	}
	if err := projection.Put(tx, uncovered+events.StepKey(ready.Step),
		batch{Step: ready.Step, Groups: ready.Groups}); err != nil || !d.feed.Export() {
		return err
	}
	return d.cover(tx, s, ready.Step) // no weights will ever come of it
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
	return d.cover(tx, s, published.ThroughStep)
}

// cover frees the places of the batches up to a step.
func (d *Decider) cover(tx *projection.Tx, s *state, through int64) error {
	s.ThroughStep = max(s.ThroughStep, through)
	for b, err := range projection.Scan[batch](tx, uncovered) {
		if err != nil || b.Step > through {
			return err
		}
		s.Batches--
		for _, g := range b.Groups {
			p, known, err := projection.Get[capacityUse](tx, counted+g)
			if err != nil || !known {
				return err
			}
			if err := d.uncount(tx, s, g, p); err != nil {
				return err
			}
		}
		if err := tx.Delete(uncovered + events.StepKey(b.Step)); err != nil {
			return err
		}
	}
	return nil
}
