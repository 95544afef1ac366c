package querysampler

import (
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// capacityUnknown is how many rollouts wait for turns at once while nobody has said how many the
// servers can sample: as many as one generator asks for at once by default.
const capacityUnknown = 64

// underWayPerTurn bounds all rollouts of a run that follows the capacity of its servers: as many
// for each turn that the servers can sample at once. The servers stay busy while tools and
// verifiers take up to three quarters of a rollout's time. Beyond that the sandboxes are scarce,
// and more rollouts would wait for them and grow old. A run whose rewards people give has no such
// bound: its rollouts wait for them.
const underWayPerTurn = 4

// roomToAsk reports whether another group may begin in a run that follows the capacity of its
// servers: while fewer rollouts wait for a turn, or have one sampled, than the servers can sample
// at once. Those at their tools or at the scorer take nothing of it, up to underWayPerTurn. One
// group may always be under way.
func (d *Decider) roomToAsk(p *plan, s state) bool {
	capacity := s.Capacity
	if capacity == 0 {
		capacity = capacityUnknown
	}
	people := d.cfg.Has(runfile.FeatureFeedbackRewards) || d.cfg.Scorer.Function != ""
	return p.underWay == 0 || p.asking < capacity && (people || p.underWay < underWayPerTurn*capacity)
}

func (d *Decider) applyCapacity(s *state, e events.Event) error {
	if d.cfg.InFlight != runfile.AutoInFlight {
		return nil
	}
	measured, err := events.Data[events.CapacityMeasured](e)
	if err != nil {
		return err
	}
	s.Capacity = max(1, measured.Turns)
	return nil
}

// asks is 1 for a rollout that waits for a turn, or has one sampled.
func (d *Decider) asks(r inFlight) int {
	if d.cfg.InFlight == runfile.AutoInFlight && r.Stage == events.StageGenerator && !r.HasOutcome() &&
		!events.External(r.ID) {
		return 1
	}
	return 0
}

// progress folds an event of a rollout, for which its agent used so much of its time, and counts it
// where it waits for a turn from now on, or does not any more.
func (d *Decider) progress(s *state, r *inFlight, e events.Event, used time.Duration) {
	before := d.asks(*r)
	if r.Progress.Apply(e) {
		r.Clock.Move(e, used)
		s.excuse(r)
	}
	s.Asking += d.asks(*r) - before
}
