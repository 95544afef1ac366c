// Package trainerfeeder composes the batches of each feed from completed groups, and says which
// groups a feed will not train on.
package trainerfeeder

import (
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// ahead is how many batches may be ready that the trainer has not taken: one, so that its next
// batch is there when it asks, and none grows stale behind it.
const ahead = 1

// Decider folds groups and a feed's progress, and decides batch_ready and group_dropped.
type Decider struct {
	run       string
	cfg       runfile.RunConfig
	feed      runfile.Feed
	staleness runfile.Staleness
	filters   runfile.Filters
	store     storage.Store
}

var _ pipeline.Mover = (*Decider)(nil)

// NewDecider makes the decider of one feed. The store is only used to complete a decided batch.
func NewDecider(run string, cfg runfile.RunConfig, feed runfile.Feed, store storage.Store) *Decider {
	return &Decider{run: run, cfg: cfg, feed: feed, staleness: cfg.StalenessOf(feed),
		filters: cfg.FiltersOf(feed), store: store}
}

// Decide drops what can no longer be trained and composes the next batch when enough groups wait.
func (d *Decider) Decide(v projection.View, _ uint64, now time.Time) ([]events.Event, time.Time, error) {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil {
		return nil, time.Time{}, err
	}
	return d.decide(v, s, now)
}

// LastChange is the sequence of the last event that a decision may follow from: to decide is to
// look at all waiting groups.
func (d *Decider) LastChange(v projection.View) (uint64, error) {
	s, _, err := projection.Get[state](v, stateKey)
	return s.Moved, err
}

func (d *Decider) decide(v projection.View, s state, now time.Time) (facts []events.Event, wake time.Time, err error) {
	next := builder{feed: d.feed}
	for g, err := range projection.Scan[pending](v, waiting) {
		if err != nil {
			return nil, wake, err
		}
		if d.awaitsTeachers(g, s, now) {
			if wake.IsZero() || g.Until.Before(wake) {
				wake = g.Until
			}
			continue // others are not held up by it
		}
		if drop, ok := d.drop(g, s); ok {
			fact, err := events.New(d.run, events.GroupDroppedType, g.ID, d.feed.Name, drop)
			if err != nil {
				return nil, wake, err
			}
			facts = append(facts, fact)
			continue
		}
		if next.take(g, d.trainedTokens(g)); next.full {
			break // newer groups are judged when their turn comes
		}
	}
	if s.Closed && d.feed.Export() && len(next.groups) > 0 {
		next.full = true // nothing comes after it
	}
	if !next.full || !d.room(s) {
		return facts, wake, nil
	}
	if soon, err := d.tooOldSoon(v, s, next.groups); soon || err != nil {
		return facts, wake, err
	}
	ready := d.compose(next.groups, s)
	fact, err := events.New(d.run, events.BatchReadyType, d.feed.Name, events.Ordinal(ready.Step), ready)
	return append(facts, fact), wake, err
}

// room reports whether another batch is wanted. An export collects, whether
// somebody consumes it or not.
func (d *Decider) room(s state) bool {
	return d.feed.Export() || s.Ready < s.Consumed+ahead && !s.Closed
}

// builder is a batch in the making: whole groups in the order in which they wait.
type builder struct {
	feed    runfile.Feed
	groups  []pending
	tokens  int64
	largest int64
	full    bool
}

// take takes the next group, or finds that the batch is full without it.
func (n *builder) take(g pending, tokens int64) {
	if len(n.groups) > 0 && !n.fits(tokens) {
		n.full = true
		return
	}
	n.groups = append(n.groups, g)
	n.tokens, n.largest = events.AddTokens(n.tokens, tokens), max(n.largest, tokens)
	if budget := n.feed.TokensPerBatch; budget > 0 {
		n.full = n.tokens >= budget
	} else {
		n.full = len(n.groups) == n.feed.GroupsPerBatch
	}
}

// fits reports whether another group is within the token budget, and within what a rank's file can
// hold: balanced over the ranks, none has more than the mean and the largest group.
func (n *builder) fits(tokens int64) bool {
	total := events.AddTokens(n.tokens, tokens)
	if n.feed.TokensPerBatch > 0 && total > n.feed.TokensPerBatch {
		return false
	}
	return events.AddTokens(total/int64(n.feed.RankCount()), max(n.largest, tokens)) <= storage.MaxArrowTokens ||
		n.feed.RankCount() == 1 && total <= storage.MaxArrowTokens
}

// compose makes the next batch of whole groups. Its file, and what follows from it, are
// added when it is completed.
func (d *Decider) compose(groups []pending, s state) events.BatchReady {
	ready := events.BatchReady{Step: s.Ready + 1, MinVersion: groups[0].DispatchVersion}
	var rewards float64
	var scored int
	for _, g := range groups {
		ready.Groups = append(ready.Groups, g.ID)
		ready.MinVersion = min(ready.MinVersion, g.DispatchVersion)
		rewards += float64(g.Mean * float64(g.compared()))
		scored += g.compared()
		for _, m := range g.Members {
			if why := d.mask(g, m); why == "" {
				ready.Rollouts = append(ready.Rollouts, m.Rollout)
			} else {
				if ready.Masked == nil {
					ready.Masked = map[string]string{}
				}
				ready.Masked[m.Rollout] = why
			}
		}
	}
	ready.RewardMean = rewards / float64(scored)
	ready.Staleness = s.PolicyVersion - ready.MinVersion
	return ready
}
