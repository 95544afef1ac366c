package audit

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// batch checks a feed's steps, whom a batch is made of, and its files.
func (c *Checker) batch(e events.Event) error {
	switch e.Type {
	case events.BatchConsumedType:
		c.consume(e)
		c.leftOut(e)
		return nil
	case events.BatchReadyType:
	default:
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
	feed, ok := c.feed(e.Entity)
	if !ok {
		c.find(RuleBatch, e, "the run has no such feed")
		return nil
	}
	c.conservation(e, feed, ready)
	c.compose(feed, ready)
	return c.batchFiles(e, feed, ready)
}

// leftOut checks that a trainer leaves out only what it was given.
func (c *Checker) leftOut(e events.Event) {
	consumed, err := events.Data[events.BatchConsumed](e)
	if err != nil {
		return // said already
	}
	for _, id := range consumed.Stale {
		if step := c.batched[e.Entity][id]; step != consumed.Step {
			c.find(RuleBatch, e, "rollout %s is left out of step %d, whose batch does not hold it", id, consumed.Step)
		}
	}
}

func (c *Checker) feed(name string) (runfile.Feed, bool) {
	feeds := c.books.Config.Feeds
	i := slices.IndexFunc(feeds, func(f runfile.Feed) bool { return f.Name == name })
	if i < 0 {
		return runfile.Feed{}, false
	}
	return feeds[i], true
}

// conservation checks that every scored member of the batch's groups is trained on or masked, never
// both, for the reason that holds, and that nobody else is.
func (c *Checker) conservation(e events.Event, feed runfile.Feed, ready events.BatchReady) {
	trained := map[string]bool{}
	for _, id := range ready.Rollouts {
		trained[id] = true
	}
	members := 0
	for _, id := range ready.Groups {
		g := c.groups[id]
		if g == nil || !g.completed {
			c.find(RuleBatch, e, "group %s is not complete", id)
			continue
		}
		for _, m := range g.members {
			r := c.rollouts[m.Rollout]
			if r == nil || r.outcome != events.RolloutScoredType {
				continue
			}
			members++
			why, masked := ready.Masked[m.Rollout]
			if want := c.mask(feed, m, r, e.AsOf); trained[m.Rollout] == masked || why != want {
				c.find(RuleMembers, e, "rollout %s: trained on %v, masked %v as %q; the facts say %q", m.Rollout,
					trained[m.Rollout], masked, why, want)
			}
			c.fresh(e, feed, ready, m, r)
		}
	}
	if n := len(ready.Rollouts) + len(ready.Masked); n != members {
		c.find(RuleMembers, e, "%d rollouts are trained on or masked, but its groups have %d scored members", n,
			members)
	}
}

// mask is why a member must not be trained on, "" for one that must.
func (c *Checker) mask(feed runfile.Feed, m events.Member, r *rolloutState, asOf uint64) string {
	filters := c.books.Config.FiltersOf(feed)
	switch {
	case m.Failed || r.invalidated > 0 && r.invalidated <= asOf:
		return "invalidated"
	case r.scored.TextOnly:
		return "no token ids"
	case r.episode.Unsampled() && len(r.maskedTokens(r.episode)) > 0:
		return storage.LeftMasked
	case r.episode.Unsampled():
		return storage.LeftUnsampled
	case r.episode.OnlyConstrained() && !filters.TrainConstrained:
		return storage.LeftConstrained
	case c.books.Config.StalenessOf(feed).RequireVersions && r.episode.UnknownVersions > 0:
		return "unknown version"
	case feed.MinReward != nil && r.reward < *feed.MinReward:
		return "min_reward"
	case events.Untold(r.episode.StopReason):
		return r.episode.StopReason
	case filters.Truncated && r.episode.StopReason != events.StopFinished:
		return "truncated"
	case filters.MaxTokens > 0 && r.episode.Tokens > filters.MaxTokens:
		return "max_tokens"
	}
	return c.untaught(feed, r, asOf)
}

// fresh checks that a feed that drops what is too old has not batched it.
func (c *Checker) fresh(e events.Event, feed runfile.Feed, ready events.BatchReady, m events.Member, r *rolloutState) {
	bound := c.books.Config.StalenessOf(feed)
	staleness := ready.MinVersion + ready.Staleness - r.ageVersion(bound)
	if drops(bound) && staleness > bound.Max {
		c.find(RuleMembers, e, "rollout %s is %d policy versions old, the feed drops what is older than %d", m.Rollout,
			staleness, bound.Max)
	}
}

// batchFiles checks that the files hold the fact's rollouts, in its order, each group on one rank.
func (c *Checker) batchFiles(e events.Event, feed runfile.Feed, ready events.BatchReady) error {
	if len(ready.Files) != feed.RankCount() {
		c.find(RuleBatch, e, "it names %d files for %d ranks", len(ready.Files), feed.RankCount())
		return nil
	}
	var files []*storage.Batch
	for _, ref := range ready.Files {
		data, err := c.fetch(e, ref)
		if data == nil {
			return err
		}
		file, err := storage.DecodeBatch(data)
		if err != nil {
			c.find(RuleObject, e, "%v", err)
			return nil
		}
		files = append(files, file)
	}
	var rollouts []string
	var whole storage.Counts
	tokens, ranks := int64(0), map[string]int{}
	for r, f := range files {
		whole = whole.Plus(storage.Count(f.Samples))
		for i := range f.Samples {
			s := &f.Samples[i]
			tokens += int64(len(s.Tokens))
			if at, ok := ranks[s.Group]; ok && at != r {
				c.find(RuleBatch, e, "group %s stands on ranks %d and %d", s.Group, at, r)
			}
			ranks[s.Group] = r
			if len(rollouts) == 0 || rollouts[len(rollouts)-1] != s.Rollout {
				rollouts = append(rollouts, s.Rollout)
			}
		}
	}
	for r, f := range files {
		if f.Run != c.report.Run || f.Feed != e.Entity || f.Step != ready.Step || f.Rank != r ||
			f.Ranks != len(files) || f.MicroBatches != ready.MicroBatches || f.Whole != whole {
			c.find(RuleBatch, e,
				"file %d is rank %d of %d of step %d of feed %s, with %d micro-batches, of a batch of %+v; the files hold %+v",
				r, f.Rank, f.Ranks, f.Step, f.Feed, f.MicroBatches, f.Whole, whole)
		}
	}
	if !slices.Equal(rollouts, ready.Rollouts) || whole.Samples != int64(ready.Samples) ||
		whole.SampledTokens != ready.Sampled || tokens != ready.Tokens {
		c.find(RuleBatch, e,
			"its files hold %d samples with %d sampled of %d tokens, of %v; the fact says %d with %d of %d, of %v",
			whole.Samples, whole.SampledTokens, tokens, rollouts, ready.Samples, ready.Sampled,
			ready.Tokens, ready.Rollouts)
		return nil
	}
	return c.samples(e, feed, ready, files)
}
