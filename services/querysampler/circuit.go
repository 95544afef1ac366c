package querysampler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// The circuit breaker looks at the latest outcomes of the run's own rollouts, and of its
// groups. One success between failures closes nothing: a server that fails every second turn
// fails almost every rollout.

// window holds what became of the latest rollouts or groups, a letter each, the oldest first.
type window string

// add appends a letter, and drops the oldest beyond a size.
func (w *window) add(letter byte, size int) {
	*w += window(letter)
	*w = (*w)[max(0, len(*w)-size):]
}

// count is how many have one of some letters.
func (w window) count(letters string) (n int) {
	for i := range len(w) {
		if strings.IndexByte(letters, w[i]) >= 0 {
			n++
		}
	}
	return n
}

// What an outcome is, a letter each in state.Outcomes. Failures have that of their stage.
const (
	outcomeGood        = '.'
	outcomeEndpoint    = 'e' // failed at the inference server
	outcomeUntrainable = 'u' // no tokens that can be trained on
	outcomeUnparsed    = 'p' // tool calls that the server left in the text
)

// stages are those that a rollout fails at, with the letter of their outcomes.
var stages = []struct {
	name    string
	letters string
}{
	{events.StageGenerator, "ge"},
	{events.StageSampler, "d"}, // its deadline passed
	{events.StageScorer, "s"},
	{events.StageTools, "t"},
	{events.StageEnvironment, "n"},
}

// maxOutcomes bounds how many rollouts the window holds, whatever the group size.
const maxOutcomes = 4096

// breaks reports whether the run has a circuit breaker.
func (d *Decider) breaks() bool { return d.cfg.Limits.HopelessGroups > 0 }

// windowGroups is how many groups' rollouts the window holds: no fewer than may fail.
func (d *Decider) windowGroups() int {
	l := d.cfg.Limits
	return max(l.FailureWindow, l.HopelessGroups, l.UntrainableGroups)
}

// outcomes is how many outcomes of rollouts count.
func (d *Decider) outcomes() int { return min(d.windowGroups()*d.cfg.GroupSize, maxOutcomes) }

// share is how many rollouts of the window that many groups are.
func (d *Decider) share(groups int) int {
	whole := d.windowGroups()
	return (d.outcomes()*groups + whole - 1) / whole
}

// note appends an outcome to the window.
func (d *Decider) note(s *state, outcome byte) {
	if d.breaks() {
		s.Outcomes.add(outcome, d.outcomes())
	}
}

// noteFailure appends a failure, and keeps its text as the stage's last one.
func (d *Decider) noteFailure(s *state, cause failing) {
	if !d.breaks() {
		return
	}
	i := slices.IndexFunc(stages, func(stage struct{ name, letters string }) bool { return stage.name == cause.Stage })
	if i < 0 {
		return // a stage that this version does not know, as a later one may state
	}
	letter := stages[i].letters[0]
	if cause.Stage == events.StageGenerator && cause.Class == events.ClassEndpoint {
		letter = outcomeEndpoint
	}
	if s.Failures == nil {
		s.Failures = map[string]failing{}
	}
	cause.Message = fmt.Sprintf("%.300s", cause.Message)
	s.Failures[cause.Stage] = cause
	d.note(s, letter)
}

// noteTurn looks at a turn of the run's own: the first one that cannot be trained on makes
// its rollout untrainable.
func (d *Decider) noteTurn(tx *projection.Tx, s *state, rollout string, turn events.TurnSampled) error {
	if !d.breaks() || events.External(rollout) || turn.MaskedBy() != "" {
		return nil
	}
	s.Called = s.Called || len(turn.ToolCalls) > 0
	outcome, lacks := byte(outcomeUntrainable), turn.Lacks
	switch {
	case turn.TextOnly:
	case d.requiresVersions() && turn.PolicyVersion == runfile.UnknownVersion:
		lacks = []string{events.LackVersions}
	case slices.Contains(turn.Lacks, events.LackTools):
		outcome = outcomeUnparsed
	default:
		return nil
	}
	r, ok, err := projection.Get[inFlight](tx, flying+rollout)
	if !ok || err != nil || r.Noted {
		return err
	}
	s.Lacks = lacks
	d.note(s, outcome)
	r.Noted = true
	return projection.Put(tx, flying+rollout, r)
}

// requiresVersions reports whether the feed that paces the run trains only on
// tokens of known versions.
func (d *Decider) requiresVersions() bool {
	return len(d.cfg.Feeds) > 0 && d.cfg.StalenessOf(d.cfg.Feeds[0]).RequireVersions
}

// noteScored appends a success, unless the rollout is known to be untrainable.
func (d *Decider) noteScored(tx *projection.Tx, s *state, rollout string) error {
	if events.External(rollout) {
		return nil
	}
	r, ok, err := projection.Get[inFlight](tx, flying+rollout)
	if ok && !r.Noted {
		d.note(s, outcomeGood)
	}
	return err
}

// tripped says why the circuit breaker opens: a class, and a text.
func (d *Decider) tripped(s state) (class, why string) {
	if d.cfg.Epochs > 0 {
		return d.endpointTripped(s)
	}
	for _, look := range []func(state) (string, string){d.untrainable, d.failedAtOneStage,
		d.failedAnywhere, d.noSignal} {
		if class, why := look(s); class != "" {
			return class, why
		}
	}
	return "", ""
}

// endpointTripped looks at the inference server alone: an evaluation measures what else fails.
func (d *Decider) endpointTripped(s state) (class, why string) {
	if n := s.Outcomes.count(string(outcomeEndpoint)); n >= d.share(d.cfg.Limits.HopelessGroups) {
		return events.ClassEndpoint, d.failedText(s, n, events.StageGenerator)
	}
	return "", ""
}

func (d *Decider) failedAtOneStage(s state) (class, why string) {
	for _, stage := range stages {
		if n := s.Outcomes.count(stage.letters); n >= d.share(d.cfg.Limits.HopelessGroups) {
			return s.Failures[stage.name].Class, d.failedText(s, n, stage.name)
		}
	}
	return "", ""
}

// failedAnywhere adds all stages up: three quarters of a full window.
func (d *Decider) failedAnywhere(s state) (class, why string) {
	total, worst, most := 0, "", 0
	var parts []string
	for _, stage := range stages {
		n := s.Outcomes.count(stage.letters)
		if total += n; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", stage.name, n))
		}
		if n > most {
			worst, most = stage.name, n
		}
	}
	if 4*total < 3*d.outcomes() {
		return "", ""
	}
	last := s.Failures[worst]
	return last.Class, fmt.Sprintf("%d of the last %d rollouts failed at different stages (%s); see to them, then `rondo run resume %s`. The last failure at the stage %s: %s: %s",
		total, len(s.Outcomes), strings.Join(parts, ", "), d.run, worst, last.Class, last.Message)
}

func (d *Decider) failedText(s state, n int, stage string) string {
	last := s.Failures[stage]
	return fmt.Sprintf("%d of the last %d rollouts failed at the stage %s; see to it, then `rondo run resume %s`. The last failure: %s: %s",
		n, len(s.Outcomes), stage, d.run, last.Class, last.Message)
}

// untrainable: the inference server does not give what training needs. Text that looks like
// a tool call counts only where no turn of the run has ever had a parsed one: a model may
// also write a call wrongly.
func (d *Decider) untrainable(s state) (class, why string) {
	least := d.cfg.Limits.UntrainableGroups
	if least == 0 {
		return "", ""
	}
	letters := string(outcomeUntrainable)
	if !s.Called {
		letters += string(outcomeUnparsed)
	}
	n := s.Outcomes.count(letters)
	if n < d.share(least) {
		return "", ""
	}
	lacks := "it does not say what"
	if len(s.Lacks) > 0 {
		lacks = strings.Join(s.Lacks, ", ")
	}
	return events.PauseUntrainable,
		fmt.Sprintf("%d of the last %d rollouts have no turns that can be trained on. The inference server lacks: %.200s. "+
			"`rondo doctor --endpoint URL --model MODEL` checks a server and says how to start it; then `rondo run resume %s`",
			n, len(s.Outcomes), lacks, d.run)
}
