package trainerfeeder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// Why a scored member of a batched group is not trained on; it counts in the
// group's baseline all the same.
const (
	maskInvalidated = "invalidated"
	maskTextOnly    = "no token ids"
	maskUnsampled   = storage.LeftUnsampled
	maskMasked      = storage.LeftMasked
	maskConstrained = storage.LeftConstrained
	maskUnknown     = "unknown version"
	maskReward      = "min_reward"
	maskTruncated   = "truncated"
	maskTooLong     = "max_tokens"
	maskEpisode     = "whole_episodes"
)

// mask says why a scored member of a group is not trained on, "" for one that is.
func (d *Decider) mask(g pending, m member) string {
	why := d.maskAlone(m)
	if why == "" && d.filters.WholeEpisodes && !d.wholeEpisode(g, m) {
		return maskEpisode
	}
	return why
}

// wholeEpisode reports whether all roles of a member's episode are trained on. A role that the
// environment never asked has nothing to train on, and is no loss.
func (d *Decider) wholeEpisode(g pending, m member) bool {
	roles := len(events.RolesIn(d.cfg, g.ID))
	if roles == 0 {
		return true
	}
	trained := 0
	for _, o := range g.Members {
		if o.Index/roles != m.Index/roles {
			continue
		}
		if why := d.maskAlone(o); why == "" || why == maskTextOnly && o.Unasked {
			trained++
		}
	}
	return trained == roles
}

// maskAlone is mask without what becomes of the other roles of the episode.
func (d *Decider) maskAlone(m member) string {
	if why := d.maskSampled(m); why != "" {
		return why
	}
	if name := d.untaught(m); name != "" {
		return maskTeacher + name
	}
	return ""
}

// maskSampled is mask before teachers count.
func (d *Decider) maskSampled(m member) string {
	switch {
	case m.Invalid || !m.Compared:
		return maskInvalidated
	case m.TextOnly:
		return maskTextOnly
	case m.Masked:
		return maskMasked
	case m.Unsampled:
		return maskUnsampled
	case m.Constrained && !d.filters.TrainConstrained:
		return maskConstrained
	case d.staleness.RequireVersions && m.Unknown:
		return maskUnknown
	case d.feed.MinReward != nil && m.Reward < *d.feed.MinReward:
		return maskReward
	case events.Untold(m.Stop):
		return m.Stop
	case d.filters.Truncated && m.Stop != events.StopFinished:
		return maskTruncated
	case d.filters.MaxTokens > 0 && m.Tokens > int64(d.filters.MaxTokens):
		return maskTooLong
	}
	return ""
}

// trainedTokens are the tokens of the members that are trained on.
func (d *Decider) trainedTokens(g pending) (tokens int64) {
	for _, m := range g.Members {
		if d.mask(g, m) == "" {
			tokens = events.AddTokens(tokens, m.Tokens)
		}
	}
	return tokens
}

// Names of the filters in GroupDropped.
const (
	filterUntrainable  = "untrainable"
	filterSurvivors    = "min_survivors"
	filterZeroVariance = "zero_variance"
	filterPassRate     = "pass_rate"
	filterTooLarge     = "too_large"
	filterClosed       = "closed"
)

// drop says whether a waiting group can no longer be trained, and why.
func (d *Decider) drop(g pending, s state) (events.GroupDropped, bool) {
	dropped := events.GroupDropped{Feed: d.feed.Name}
	staleness := d.age(g, s)
	filter, detail := d.filter(g)
	switch {
	case filter != "":
		dropped.Reason, dropped.Filter, dropped.Detail = events.DropFiltered, filter, detail
	case staleness > d.staleness.Max && d.drops():
		dropped.Reason, dropped.Staleness = events.DropStale, staleness
		dropped.Detail = fmt.Sprintf("%d policy versions old, at most %d are allowed", staleness, d.staleness.Max)
		if now := s.PolicyVersion - d.ageVersion(g); now < staleness {
			dropped.Detail = fmt.Sprintf("%d policy versions old now and %d when its batch would be consumed, at most %d are allowed",
				now, staleness, d.staleness.Max)
		}
	case s.Closed && !d.feed.Export():
		dropped.Reason, dropped.Filter, dropped.Detail = events.DropStale, filterClosed,
			"the run was closed before the group was batched"
	default:
		return dropped, false
	}
	return dropped, true
}

// filter finds the rule that keeps a group out of every batch.
func (d *Decider) filter(g pending) (name, detail string) {
	survivors := g.compared()
	if least := d.filters.MinSurvivors; survivors < least {
		return filterSurvivors, fmt.Sprintf("%d of its members have a reward, at least %d must", survivors, least)
	}
	if why, ok := d.untrainable(g); ok {
		return filterUntrainable, "no member can be trained on: " + why
	}
	if tokens := d.trainedTokens(g); tokens > storage.MaxArrowTokens {
		return filterTooLarge, fmt.Sprintf("its %d tokens are more than a batch file holds, which is %d", tokens,
			storage.MaxArrowTokens)
	}
	if d.filters.ZeroVariance {
		if reward, ok := d.allEqual(g); ok {
			return filterZeroVariance, fmt.Sprintf("the rewards of its members are all %g", reward)
		}
	}
	if w := d.filters.PassRate; w != nil {
		if rate := passRate(g, *w); rate < w.Min || rate > w.Max {
			return filterPassRate, fmt.Sprintf("%.3g of its members pass, outside of %g to %g", rate, w.Min, w.Max)
		}
	}
	return "", ""
}

// untrainable reports whether all members are masked, and the reasons.
func (d *Decider) untrainable(g pending) (why string, ok bool) {
	reasons := map[string]bool{}
	for _, m := range g.Members {
		reason := d.mask(g, m)
		if reason == "" {
			return "", false
		}
		if m.Misfit && reason == maskTextOnly {
			reason = "the task does not fit into the inference server's context"
		}
		reasons[reason] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(reasons)), ", "), true
}

// allEqual reports whether the compared members of each role have the same reward, and the first of
// these. A length penalty tells any rewards apart, so what was scored counts.
func (d *Decider) allEqual(g pending) (reward float64, ok bool) {
	seen := map[string]float64{}
	for _, m := range g.Members {
		if !m.Compared {
			continue
		}
		role := events.RoleOf(d.cfg, g.ID, m.Index)
		if first, ok := seen[role]; ok && m.Reward != first {
			return 0, false
		}
		if len(seen) == 0 {
			reward = m.Reward
		}
		seen[role] = m.Reward
	}
	return reward, true
}

// passRate is the share of the compared members whose reward passes.
func passRate(g pending, w runfile.PassRate) float64 {
	at, passed := w.Passes(), 0
	for _, m := range g.Members {
		if m.Compared && m.Reward >= at {
			passed++
		}
	}
	return float64(passed) / float64(g.compared())
}
