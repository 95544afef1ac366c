package querysampler

import (
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

// failing is a try that failed.
type failing struct {
	Stage   string `json:"stage"`
	Class   string `json:"class"`
	Message string `json:"message,omitempty"`
}

// refusals is how many rollouts' first prompts the endpoint may refuse in a row.
func (d *Decider) refusals() int { return d.cfg.Limits.HopelessGroups * d.cfg.GroupSize }

// full reports whether a stream of that many bytes must not be given anything new.
func (d *Decider) full(bytes int64) bool {
	return d.maxBytes > 0 && float64(bytes) > topology.FullAt*float64(d.maxBytes)
}

// awaitsRoom: the run's stream is full, and the archiver will make room: rollouts that end leave
// it. Only where nothing is in flight, and it was full after the last ones had left, nothing will.
func (d *Decider) awaitsRoom(v projection.View, s state) (bool, error) {
	if !d.cfg.Log.Forgets() || !d.full(s.Bytes) {
		return false, nil
	}
	if !d.full(s.Left) {
		return true, nil
	}
	for _, err := range projection.Scan[inFlight](v, flying) {
		return true, err
	}
	return false, nil
}

// mustStop is the circuit breaker. It gives the class and the text of the reason why the run must
// not go on, if there is one. The run opens nothing more until an operator has seen to it, and the
// fleet works for the others.
func (d *Decider) mustStop(s state) (class, why string) {
	budget := d.cfg.Limits.BudgetTokens
	if class, why := d.gapTooLarge(s.Gap); class != "" {
		return class, why
	}
	switch {
	case d.full(s.Bytes):
		return events.PauseFull, fmt.Sprintf("the run's stream is %.0f %% full",
			100*float64(s.Bytes)/float64(d.maxBytes))
	case budget > 0 && s.Spent >= budget:
		return events.PauseBudget,
			fmt.Sprintf("its turns have had %d tokens, and its budget is %d; `rondo run resume %s` grants as many again",
				s.Spent, budget, d.run)
	case s.Misfits > 0 && s.Misfits == len(d.cfg.Tasks) && d.cfg.Epochs == 0: // an evaluation ends by itself
		return events.PauseMisfit,
			fmt.Sprintf("no task of the run fits into the inference server's context: serve a longer one, or raise limits.context; then `rondo run resume %s`", d.run)
	case !d.breaks():
		return "", ""
	case s.Refused >= d.refusals():
		return events.ClassEndpoint,
			fmt.Sprintf("the endpoint refused the first prompt of %d rollouts in a row and answered no other: see to the model's name and the parameters, then "+
				"`rondo run resume %s`. The last answer: %.300s", s.Refused, d.run, s.LastFailure)
	}
	return d.tripped(s)
}

// pause makes the fact.
func (d *Decider) pause(p *plan, s state, class, why string) {
	paused := events.RunPaused{Reason: why, Class: class}
	p.add(events.New(d.run, events.RunPausedType, d.run, fmt.Sprintf("%s-%d", class, s.Pauses), paused))
}

func applyPaused(s *state, e events.Event) error {
	paused, err := events.Data[events.RunPaused](e)
	s.Paused, s.PausedBy = true, paused.Class
	s.Pauses++
	return err
}

// applyResumed lets go of what had paused the run.
func applyResumed(s *state) {
	if s.PausedBy == events.PauseBudget {
		s.Spent = 0
	}
	s.Paused, s.PausedBy, s.Refused = false, "", 0
	s.Outcomes, s.Failures, s.Fates = "", nil, ""
	s.Gap.resumed()
}

// applySampled: a turn costs tokens, and shows that the endpoint answers.
func (d *Decider) applySampled(tx *projection.Tx, s *state, e events.Event) error {
	turn, err := events.Data[events.TurnSampled](e)
	if err != nil {
		return err
	}
	s.Spent = events.AddTokens(s.Spent, int64(turn.Used()))
	s.Refused = 0
	if err := d.noteProgress(tx, s, e, turn.SamplingTime()); err != nil {
		return err
	}
	return d.noteTurn(tx, s, e.Entity, turn)
}

// applyAnswered: the tools of a turn, or the environment in their place, took
// some of the agent's time.
func applyAnswered[T interface{ RunningTime() time.Duration }](d *Decider, tx *projection.Tx,
	s *state, e events.Event) error {
	answered, err := events.Data[T](e)
	if err != nil {
		return err
	}
	return d.noteProgress(tx, s, e, answered.RunningTime())
}

// noteProgress: a rollout has gone on, so what failed before has gone well in the end.
func (d *Decider) noteProgress(tx *projection.Tx, s *state, e events.Event, used time.Duration) error {
	r, ok, err := projection.Get[inFlight](tx, flying+e.Entity)
	if !ok || err != nil {
		return err
	}
	before := r
	d.progress(s, &r, e, used)
	r.Failing = nil
	return d.update(tx, before, r)
}

// applyRetried remembers what a rollout fails by: where that hangs, its deadline ends it.
func (d *Decider) applyRetried(tx *projection.Tx, e events.Event) error {
	retried, err := events.Data[events.RolloutRetried](e)
	if err != nil {
		return err
	}
	r, ok, err := projection.Get[inFlight](tx, flying+e.Entity)
	if !ok || err != nil {
		return err
	}
	before := r
	if retried.Behind > 0 { // an agent that is started anew has its time anew
		r.Clock.Move(e, 0)
	}
	r.Failing = &failing{Stage: retried.Stage, Class: retried.Class, Message: retried.Message}
	return d.update(tx, before, r)
}

func (d *Decider) applyFailed(tx *projection.Tx, s *state, e events.Event) error {
	failed, err := events.Data[events.RolloutFailed](e)
	if err != nil {
		return err
	}
	r, known, err := projection.Get[inFlight](tx, flying+e.Entity)
	if err != nil {
		return err
	}
	if failed.Class == events.ClassRefused && !events.External(e.Entity) {
		s.Refused++
		s.LastFailure = failed.Message
	}
	// outsiders' failures are their own
	if cause := d.cause(failed, r, known); cause != nil && !r.Noted && !events.External(e.Entity) {
		d.noteFailure(s, *cause)
	}
	if !known {
		return nil
	}
	return d.end(tx, s, r)
}

// cause is what a rollout failed by, nil where that says nothing of the run: it was cancelled, its
// prompt was refused, or nobody gave feedback. A deadline passes because of the tries that failed
// before it, or of an endpoint that has not answered once.
func (d *Decider) cause(failed events.RolloutFailed, r inFlight, known bool) *failing {
	switch {
	case failed.Class == events.ClassCancelled, failed.Class == events.ClassRefused, r.Failing != nil &&
		r.Failing.Class == events.ClassRefused:
		return nil
	case failed.Class != events.ClassDeadline:
		return &failing{Stage: failed.Stage, Class: failed.Class, Message: failed.Message}
	case r.Failing == nil && known && !r.Answered && d.cfg.Epochs == 0: // an evaluation measures what fails
		return &failing{Stage: events.StageGenerator, Class: events.ClassEndpoint,
			Message: failed.Message +
				", and there was not one turn: the endpoint hangs, or no generator runs with a free slot"}
	}
	if r.Failing == nil && known && !r.Finished {
		why := "the limits.timeout is too short"
		if 2*r.Used < time.Duration(d.cfg.Limits.Timeout) {
			why = "no slot came free there, or it hangs"
		}
		return &failing{Stage: events.StageSampler, Class: events.ClassDeadline,
			Message: failed.Message + " before its episode was over: " + why}
	}
	return r.Failing
}
