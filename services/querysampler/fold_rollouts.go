package querysampler

import (
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// applyQuery puts a query behind those that wait.
func applyQuery(tx *projection.Tx, e events.Event) error {
	at := events.StepKey(int64(e.Seq))
	if err := projection.Put(tx, queryAt+e.Entity, at); err != nil {
		return err
	}
	return projection.Put(tx, queries+at, e.Entity)
}

// applyForked puts a fork behind those that wait.
func applyForked(tx *projection.Tx, e events.Event) error {
	asked, err := events.Data[events.RolloutForked](e)
	if err != nil {
		return err
	}
	at := forks + events.StepKey(int64(e.Seq))
	return projection.Put(tx, at, fork{At: at, Task: asked.Task, Count: asked.Count,
		Origin: events.Origin{Rollout: e.Entity, Turn: asked.Turn}})
}

func (d *Decider) applyOpened(tx *projection.Tx, s *state, e events.Event) error {
	opened, err := events.Data[events.GroupOpened](e)
	if err != nil {
		return err
	}
	g := newGroup(e.Entity, opened)
	if events.External(e.Entity) {
		g.expireAt(e.Time.Add(time.Duration(d.cfg.Limits.Timeout)), e.Time)
	} else if err := takeUp(tx, s, opened); err != nil {
		return err
	}
	if err := count(tx, s, e.Entity, capacityUse{Forked: opened.Origin != nil}); err != nil {
		return err
	}
	return projection.Put(tx, halfOpen+e.Entity, g)
}

// takeUp counts a group of the run's own, and takes its query, or fork, out of those that wait.
func takeUp(tx *projection.Tx, s *state, opened events.GroupOpened) error {
	s.Groups++
	if opened.Origin != nil {
		return takeUpFork(tx, opened)
	}
	task := opened.Task
	at, query, err := projection.Get[string](tx, queryAt+task)
	if err != nil {
		return err
	}
	if !query {
		s.Drawn++
		return nil
	}
	if err := tx.Delete(queryAt + task); err != nil {
		return err
	}
	return tx.Delete(queries + at)
}

// takeUpFork takes the first of the forks out that ask for such a group.
func takeUpFork(tx *projection.Tx, opened events.GroupOpened) error {
	for f, err := range projection.Scan[fork](tx, forks) {
		if err != nil {
			return err
		}
		if f.Origin == *opened.Origin && f.Count == opened.Size {
			return tx.Delete(f.At)
		}
	}
	return nil
}

func (d *Decider) applyStarted(tx *projection.Tx, s *state, e events.Event) error {
	started, err := events.Data[events.RolloutStarted](e)
	if err != nil {
		return err
	}
	r := inFlight{ID: e.Entity, Deadline: started.Deadline}
	d.progress(s, &r, e, 0)
	if err := d.add(tx, s, r); err != nil {
		return err
	}
	g, ok, err := projection.Get[group](tx, halfOpen+started.Group)
	if !ok || err != nil {
		return err
	}
	g.Missing = slices.DeleteFunc(g.Missing, func(i int) bool { return i == started.Member })
	if len(g.Missing) == 0 {
		return tx.Delete(halfOpen + started.Group)
	}
	if events.External(g.ID) && started.Deadline.After(g.Expires) {
		g.expireAt(started.Deadline, e.Time) // one member after the other is a way to work, too
	}
	return projection.Put(tx, halfOpen+started.Group, g)
}

// applyFinished remembers the tokens that the first feed would train on, as far as its filters
// look at the rollout alone.
func (d *Decider) applyFinished(tx *projection.Tx, s *state, e events.Event) error {
	r, ok, err := projection.Get[inFlight](tx, flying+e.Entity)
	if !ok || err != nil {
		return err
	}
	before := r
	d.progress(s, &r, e, 0)
	r.Failing = nil // where it is not scored in time, nobody gave feedback
	if err := d.update(tx, before, r); err != nil {
		return err
	}
	finished, err := events.Data[events.RolloutFinished](e)
	if err != nil {
		return err
	}
	if finished.Misfit() {
		return countMisfit(tx, e.Entity)
	}
	if d.feed.TokensPerBatch == 0 {
		return nil
	}
	f := d.cfg.FiltersOf(d.feed)
	masked := finished.TextOnly || finished.Unsampled() || finished.OnlyConstrained() && !f.TrainConstrained ||
		events.Untold(finished.StopReason) ||
		f.Truncated && finished.StopReason != events.StopFinished || f.MaxTokens > 0 && finished.Tokens > f.MaxTokens
	if masked {
		return nil
	}
	r.Tokens = int64(finished.Tokens)
	return projection.Put(tx, flying+e.Entity, r)
}

func (d *Decider) applyScored(tx *projection.Tx, s *state, e events.Event) error {
	if err := d.noteScored(tx, s, e.Entity); err != nil {
		return err
	}
	r, ok, err := projection.Get[inFlight](tx, flying+e.Entity)
	if !ok || err != nil {
		return err
	}
	if d.feed.TokensPerBatch > 0 {
		if err := d.addTokens(tx, r, e); err != nil {
			return err
		}
	}
	return d.end(tx, s, r)
}

// addTokens moves a rollout's tokens to its group.
func (d *Decider) addTokens(tx *projection.Tx, r inFlight, e events.Event) error {
	scored, err := events.Data[events.RolloutScored](e)
	if err != nil || r.Tokens == 0 || d.feed.MinReward != nil && scored.Reward < *d.feed.MinReward {
		return err
	}
	key := counted + events.GroupOf(e.Entity)
	p, ok, err := projection.Get[capacityUse](tx, key)
	if !ok || err != nil {
		return err
	}
	if p.Tokens == nil {
		p.Tokens = map[string]int64{}
	}
	p.Tokens[e.Entity] = r.Tokens
	return projection.Put(tx, key, p)
}

// applyInvalidated takes the tokens back that will not be trained on. What
// is in a batch stays there.
func (d *Decider) applyInvalidated(tx *projection.Tx, s *state, e events.Event) error {
	key := counted + events.GroupOf(e.Entity)
	p, ok, err := projection.Get[capacityUse](tx, key)
	if !ok || err != nil || p.Batched || p.Tokens[e.Entity] == 0 {
		return err
	}
	before := d.tokens(p)
	delete(p.Tokens, e.Entity)
	if p.Complete {
		s.UncoveredTokens += d.tokens(p) - before
	}
	return projection.Put(tx, key, p)
}
