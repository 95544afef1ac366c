package trainerfeeder

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

func (d *Decider) drops() bool {
	return d.staleness.Policy == "" || d.staleness.Policy == events.StaleDrop
}
func (d *Decider) waits() bool { return d.staleness.Policy == events.StaleWait }

// tooOldSoon reports whether a batch of some groups that is decided now would make a group in flight too old for the version after it.
// Nobody waits for ever: such a group has rollouts under way, which their deadlines end, or is about to be completed, and groups that
// were opened when the last of the batch's was complete do not count.
func (d *Decider) tooOldSoon(v projection.View, s state, groups []pending) (bool, error) {
	if !d.waits() {
		return false, nil
	}
	complete := uint64(0)
	for _, g := range groups {
		complete = max(complete, g.Completed)
	}
	after := s.PolicyVersion + 1
	if d.feed.Name == d.cfg.Feeds[0].Name {
		after += s.Ready - s.ThroughStep // the versions of batches that no weights cover yet come, too
	}
	for f, err := range projection.Scan[flight](v, flights) {
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
		s.PolicyVersions[i].Stale = version-s.PolicyVersions[i].Version > d.staleness.Max
	}
}
