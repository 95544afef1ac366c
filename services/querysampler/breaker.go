package querysampler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

// trouble counts the rollouts in a row that failed at a stage.
type trouble struct {
	Count   int    `json:"count"`
	Class   string `json:"class"` // of the last one
	Message string `json:"message,omitempty"`
}

// failing is a try that failed.
type failing struct {
	Stage   string `json:"stage"`
	Class   string `json:"class"`
	Message string `json:"message,omitempty"`
}

// failedGroups is how many groups' rollouts may fail in a row at the inference server where the run does not say.
const failedGroups = 3

// cautious: the run looks at all stages. One from before there were classes decides again as it did, and an evaluation ends by itself: what
// fails in it is what was measured.
func (d *Decider) cautious() bool { return d.cfg.Limits.HopelessGroups > 0 && d.cfg.Epochs == 0 }

// hopeless is how many rollouts may fail in a row.
func (d *Decider) hopeless() int {
	if n := d.cfg.Limits.HopelessGroups; n > 0 {
		return n * d.cfg.GroupSize
	}
	return failedGroups * d.cfg.GroupSize
}

// full reports whether a stream of that many bytes must not be given anything new.
func (d *Decider) full(bytes int64) bool {
	return d.maxBytes > 0 && float64(bytes) > topology.FullAt*float64(d.maxBytes)
}

// awaitsRoom: the run's stream is full, and the archiver will make room: rollouts that end leave it. Only where nothing is in flight, and it was
// full after the last ones had left, nothing will.
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

// mustStop is the circuit breaker. It gives the class and the text of the reason why the run must not go on, if there is one. The run opens nothing
// more until an operator has seen to it, and the fleet works for the others.
func (d *Decider) mustStop(s state) (class, why string) {
	budget := d.cfg.Limits.BudgetTokens
	if class, why := d.gapTooLarge(s.Gap); class != "" {
		return class, why
	}
	switch {
	case d.full(s.Bytes):
		return events.PauseFull, fmt.Sprintf("the run's stream is %.0f %% full", 100*float64(s.Bytes)/float64(d.maxBytes))
	case budget > 0 && s.Spent >= budget:
		return events.PauseBudget, fmt.Sprintf("its turns have had %d tokens, and its budget is %d; `rondo run resume %s` grants as many again", s.Spent, budget, d.run)
	case s.Misfits > 0 && s.Misfits == len(d.cfg.Tasks) && d.cfg.Epochs == 0: // an evaluation ends by itself
		return events.PauseMisfit, fmt.Sprintf("no task of the run fits into the inference server's context: serve a longer one, or raise limits.context; then `rondo run resume %s`", d.run)
	case s.Refused >= d.hopeless():
		return events.ClassEndpoint, fmt.Sprintf("the endpoint refused the first prompt of %d rollouts in a row and answered no other: see to the model's name and the parameters, then "+
			"`rondo run resume %s`. The last answer: %.300s", s.Refused, d.run, s.LastFailure)
	case d.windowed():
		return d.tripped(s)
	case s.Unanswered >= d.hopeless():
		return events.ClassEndpoint, fmt.Sprintf("%d rollouts in a row failed at the endpoint; see to it, then `rondo run resume %s`. The last failure: %.300s", s.Unanswered, d.run, s.LastFailure)
	case !d.cautious():
		return "", ""
	}
	for _, stage := range slices.Sorted(maps.Keys(s.Troubles)) {
		if t := s.Troubles[stage]; t.Count >= d.hopeless() {
			return t.Class, fmt.Sprintf("%d rollouts in a row failed at the stage %s; see to it, then `rondo run resume %s`. The last failure: %s: %.300s", t.Count, stage, d.run, t.Class, t.Message)
		}
	}
	return "", ""
}

// pause makes the fact. Its class is left out where a run from before there were classes pauses, so that it decides again as it did.
func (d *Decider) pause(p *plan, s state, class, why string) {
	paused := events.RunPaused{Reason: why}
	if d.cfg.Limits.HopelessGroups > 0 || class == events.PauseBudget || class == events.PauseLogprobGap {
		paused.Class = class
	}
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
	s.Paused, s.PausedBy, s.Unanswered, s.Refused, s.Troubles = false, "", 0, 0, nil
	s.Outcomes, s.Failures, s.Fates = "", nil, ""
	s.Gap.resumed()
}

// passed: a rollout of the run's own got past a stage.
func (s *state) passed(e events.Event, stage string) {
	if !events.External(e.Entity) {
		delete(s.Troubles, stage)
	}
}

// applySampled: a turn costs tokens, and shows that the endpoint answers.
func (d *Decider) applySampled(tx *projection.Tx, s *state, e events.Event) error {
	turn, err := events.Data[events.TurnSampled](e)
	if err != nil {
		return err
	}
	s.Spent = events.AddTokens(s.Spent, int64(turn.Used()))
	s.Unanswered, s.Refused = 0, 0
	s.passed(e, events.StageGenerator)
	if err := d.noteProgress(tx, s, e, turn.SamplingTime()); err != nil {
		return err
	}
	return d.noteTurn(tx, s, e.Entity, turn)
}

func (d *Decider) applyProgress(tx *projection.Tx, s *state, e events.Event, stage string, used time.Duration) error {
	s.passed(e, stage)
	return d.noteProgress(tx, s, e, used)
}

// applyAnswered: the tools of a turn, or the environment in their place, took some of the agent's time.
func applyAnswered[T interface{ RunningTime() time.Duration }](d *Decider, tx *projection.Tx, s *state, e events.Event) error {
	answered, err := events.Data[T](e)
	if err != nil {
		return err
	}
	return d.applyProgress(tx, s, e, events.StageTools, answered.RunningTime())
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
func applyRetried(tx *projection.Tx, s *state, e events.Event) error {
	retried, err := events.Data[events.RolloutRetried](e)
	if err != nil {
		return err
	}
	if retried.Class == events.ClassEndpoint {
		s.LastFailure = retried.Message
	}
	r, ok, err := projection.Get[inFlight](tx, flying+e.Entity)
	if !ok || err != nil {
		return err
	}
	r.Failing = &failing{Stage: retried.Stage, Class: retried.Class, Message: retried.Message}
	return projection.Put(tx, flying+e.Entity, r)
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
	if cause := d.cause(failed, r, known); cause != nil && !events.External(e.Entity) { // outsiders' failures are their own
		if !r.Noted {
			d.noteFailure(s, *cause)
		}
		t := s.Troubles[cause.Stage]
		if s.Troubles == nil {
			s.Troubles = map[string]trouble{}
		}
		s.Troubles[cause.Stage] = trouble{Count: t.Count + 1, Class: cause.Class, Message: cause.Message}
		if cause.Class == events.ClassEndpoint {
			s.Unanswered++
			if failed.Class == events.ClassEndpoint || s.LastFailure == "" {
				s.LastFailure = cause.Message
			}
		}
	}
	if !known {
		return nil
	}
	return d.end(tx, s, r)
}

// cause is what a rollout failed by, nil where that says nothing of the run: it was cancelled, its prompt was refused, or nobody gave feedback. A deadline passes
// because of the tries that failed before it, or of an endpoint that has not answered once. A long episode is a cause only where the run decides
// on a window.
func (d *Decider) cause(failed events.RolloutFailed, r inFlight, known bool) *failing {
	switch {
	case failed.Class == events.ClassCancelled, failed.Class == events.ClassRefused, r.Failing != nil && r.Failing.Class == events.ClassRefused:
		return nil
	case failed.Class != events.ClassDeadline:
		return &failing{Stage: failed.Stage, Class: failed.Class, Message: failed.Message}
	case r.Failing == nil && known && !r.Answered && d.cautious():
		return &failing{Stage: events.StageGenerator, Class: events.ClassEndpoint, Message: failed.Message + ", and there was not one turn: the endpoint hangs, or no generator runs with a free slot"}
	}
	if r.Failing == nil && known && !r.Finished && d.windowed() {
		why := "the limits.timeout is too short"
		if 2*r.Used < time.Duration(d.cfg.Limits.Timeout) {
			why = "no slot came free there, or it hangs"
		}
		return &failing{Stage: events.StageSampler, Class: events.ClassDeadline, Message: failed.Message + " before its episode was over: " + why}
	}
	return r.Failing
}
