package trainerfeeder

import (
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

func (d *Decider) drops() bool {
	return d.staleness.Policy == "" || d.staleness.Policy == runfile.StaleDrop
}
func (d *Decider) waits() bool { return d.staleness.Policy == runfile.StaleWait }

// paces reports whether this is the feed that the policy is trained on, by whose
// steps its versions come.
func (d *Decider) paces() bool { return d.feed.Name == d.cfg.Feeds[0].Name }

// ageVersion is the policy version from which a group's age counts: that of its oldest token where
// the feed requires versions, else that at dispatch.
func (d *Decider) ageVersion(g pending) int64 {
	if d.staleness.RequireVersions {
		return g.Oldest
	}
	return g.DispatchVersion
}

// age is how many policy versions old a group will be when a batch that is composed now is
// consumed. Each step that was composed before and that no weights cover yet counts as one version:
// the trainer takes that step first. Such a group is dropped at once, although those versions are
// not published yet. If it waited for them, it would take up capacity, and a trainer that publishes
// late would get no batch until then.
//
// In an external run the sampler does not hold outsiders back to what the trainer has published.
// There a group of the current version is always taken, and nothing is expected before the run's
// first weights: the trainer may never publish any.
func (d *Decider) age(g pending, s state) int64 {
	age := s.PolicyVersion - d.ageVersion(g)
	if !d.paces() || d.feed.Export() {
		return age
	}
	if d.cfg.External && (age <= 0 || s.ThroughStep == 0) {
		return age
	}
	return age + s.Ready - s.ThroughStep
}

// tooOldSoon reports whether a batch of some groups that is decided now would make a group in
// flight too old for the version after it. Nobody waits for ever: such a group has rollouts under
// way, which their deadlines end, or is about to be completed, and groups that were opened when the
// last of the batch's was complete do not count.
func (d *Decider) tooOldSoon(v projection.View, s state, groups []pending) (bool, error) {
	if !d.waits() {
		return false, nil
	}
	complete := uint64(0)
	for _, g := range groups {
		complete = max(complete, g.Completed)
	}
	after := s.PolicyVersion + 1
	if d.paces() {
		after += s.Ready - s.ThroughStep // the versions of batches that no weights cover yet come, too
	}
	for f, err := range projection.Scan[openGroup](v, flights) {
		if err != nil {
			return false, err
		}
		if after-f.Version > d.staleness.Max && f.Opened < complete && (f.Started > f.Ended || f.Ended >= f.Size) {
			return true, nil
		}
	}
	return false, nil
}

// flag marks the tokens of a sample that are older than the bound when its batch is made.
func (d *Decider) flag(s *storage.Sample, version int64) {
	for i := range s.PolicyVersions {
		s.PolicyVersions[i].Stale = s.PolicyVersions[i].StaleAt(version, s.DispatchVersion, d.staleness.Max)
	}
}
