package audit

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// progress is how far the policy has come while a run is read.
type progress struct {
	version int64
	through int64 // last step that weights of this run cover
	// unforeseen counts the versions that no step of this run accounts for: of other runs,
	// or several for one step.
	unforeseen int64
	consumed   int64 // last step of the first feed that was consumed
}

// composed is a batch of the first feed that nobody has consumed yet.
type composed struct {
	at       progress // when it was composed
	rollouts []string
}

// published counts a policy version.
func (c *Checker) published(e events.Event) {
	if e.Type != events.WeightsPublishedType {
		return
	}
	published, err := events.Data[events.WeightsPublished](e)
	if err != nil {
		c.find(RuleStaleness, e, "%v", err)
		return
	}
	steps := int64(0)
	if published.Run == c.report.Run {
		steps = max(0, published.ThroughStep-c.policy.through)
	}
	versions := max(0, published.Version-c.policy.version)
	c.policy.version += versions
	c.policy.through += steps
	c.policy.unforeseen += max(0, versions-steps)
}

// compose remembers whom a batch of the first feed trains on, where the feed drops what would be
// too old when the batch is consumed.
func (c *Checker) compose(feed runfile.Feed, ready events.BatchReady) {
	cfg := c.books.Config
	if feed.Name != cfg.Feeds[0].Name || feed.Export() || !drops(cfg.StalenessOf(feed)) {
		return
	}
	c.ready[ready.Step] = composed{c.policy, ready.Rollouts}
}

// consume checks how old a batch's rollouts are when the trainer takes it for the first time. After
// a rewind the same batch comes again, however old it is by then.
func (c *Checker) consume(e events.Event) {
	consumed, err := events.Data[events.BatchConsumed](e)
	if err != nil {
		c.find(RuleStaleness, e, "%v", err)
		return
	}
	if e.Entity != c.books.Config.Feeds[0].Name {
		return
	}
	for ; c.policy.consumed < min(consumed.Step, c.steps[e.Entity]); c.policy.consumed++ {
		step := c.policy.consumed + 1
		c.notTooOld(e, step, c.ready[step])
		delete(c.ready, step)
	}
}

func (c *Checker) notTooOld(e events.Event, step int64, b composed) {
	cfg := c.books.Config
	bound := cfg.StalenessOf(cfg.Feeds[0])
	version := c.policy.version - (c.policy.unforeseen - b.at.unforeseen)
	for _, id := range b.rollouts {
		r := c.rollouts[id]
		// In an external run nobody is held back to what is published, so a feed takes what
		// is of the current version.
		if r == nil || cfg.External && (b.at.through == 0 || r.ageVersion(bound) >= b.at.version) {
			continue
		}
		if age := version - r.ageVersion(bound); age > bound.Max {
			c.find(RuleStaleness, e,
				"rollout %s of step %d is %d policy versions old when the step is consumed, at most %d are allowed",
				id, step, age, bound.Max)
		}
	}
}

// ageVersion is the policy version from which a rollout's age counts: that of its oldest token
// where versions are required, else that at dispatch.
func (r *rolloutState) ageVersion(bound runfile.Staleness) int64 {
	if bound.RequireVersions {
		return min(r.version, r.episode.MinVersion)
	}
	return r.version
}

func drops(bound runfile.Staleness) bool {
	return bound.Policy == "" || bound.Policy == runfile.StaleDrop
}
