package events

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/wording"
)

// Rollout is one episode folded from its chain.
type Rollout struct {
	Run, ID string
	Started RolloutStarted
	// Source stated its start.
	Source string
	Turns  []TurnSampled
	// UnderWay is what is recorded of the answer that is the next turn; nil for nothing.
	UnderWay *UnderWay
	// Copied counts the turns, the first ones, that a fork has of its origin.
	Copied int
	// Tools holds the answers of the turns that asked for tools.
	Tools ToolAnswers
	// Observed is what its environment has said: the opening, and an answer to each turn.
	// Rollouts without one have none.
	Observed []RolloutObserved
	// Passed: another role of its episode has the word before the last turn is answered.
	Passed bool
	// Calls are those of a harness on its workspace, and Answers those of them that are
	// answered, in their order.
	Calls   []Call
	Answers []WorkspaceAnswered
	// Steps are those that the agent has ended, of a task that has several.
	Steps    []EndedStep
	Finished *RolloutFinished
	// Rated is what the run's reward function says.
	Rated  *RolloutRated
	Scored *RolloutScored
	Failed *RolloutFailed
	// Progress is where it is.
	Progress Progress
	Clock    Clock
	// Tries counts the failed tries since the last progress.
	Tries int
	// Restarts counts how often the run's agent was started anew behind recorded turns.
	Restarts int
	// Tail is the sequence of the last link.
	Tail uint64
	// toolTime is what the tools of its own turns took, the first toolsTimed turns.
	toolTime   time.Duration
	toolsTimed int
	// pieces counts those of all answers, and advanced the tokens that are in them since the
	// last failed try or turn.
	pieces, advanced int
	// notes are those of the fold, by their type.
	notes *sync.Map
}

// Note is what a service keeps beside a fold of a rollout, to go on from in the next turn: one of
// each type for all that share the fold, and a fresh one where nothing is kept. It is as old as the
// fold and ends with it. It may hold what follows from the turns that were read, and nothing of
// turns that were added to r since: these may never come onto the log.
func Note[T any](r *Rollout) *T {
	if r.notes == nil {
		return new(T)
	}
	note, _ := r.notes.LoadOrStore((*T)(nil), new(T))
	return note.(*T)
}

// FoldRollout folds a chain given from its first link on.
func FoldRollout(links []Event) (Rollout, error) {
	r := Rollout{notes: &sync.Map{}}
	for i, e := range links {
		if i == 0 && e.Type != RolloutStartedType {
			return r, fmt.Errorf("%s: %w: a rollout begins with %s", e.ID, ErrMalformed, RolloutStartedType)
		}
		if err := r.apply(e); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Extend folds the links that follow.
func (r *Rollout) Extend(links []Event) error {
	for _, e := range links {
		if err := r.apply(e); err != nil {
			return err
		}
	}
	return nil
}

// Share is the rollout as it is now, for somebody else to change: what either folds or adds later
// is not in the other. The turns, answers and verdicts in both are the same.
func (r *Rollout) Share() Rollout {
	shared := *r
	shared.Turns, shared.Steps, shared.Observed = slices.Clip(r.Turns), slices.Clone(r.Steps), slices.Clip(r.Observed)
	shared.Tools, shared.Calls, shared.Answers = slices.Clip(r.Tools), slices.Clip(r.Calls), slices.Clip(r.Answers)
	return shared
}

func (r *Rollout) apply(e Event) error {
	var err error
	var used time.Duration // of the agent's time
	switch e.Type {
	case RolloutStartedType:
		r.Run, r.ID, r.Source = e.Run, e.Entity, e.Source
		r.Started, err = Data[RolloutStarted](e)
	case PieceSampledType:
		err = r.pieced(e)
	case TurnSampledType:
		var t TurnSampled
		t, err = Data[TurnSampled](e)
		r.Turns, used, r.UnderWay, r.advanced = append(r.Turns, t), t.SamplingTime(), nil, 0
	case RolloutCopiedType:
		var c RolloutCopied
		c, err = Data[RolloutCopied](e)
		r.Begin(c)
	case ToolsCompletedType:
		var t ToolsCompleted
		t, err = Data[ToolsCompleted](e)
		r.Tools, used = r.Tools.Add(t), t.RunningTime()
		r.toolTime, r.toolsTimed = r.toolTime+used, len(r.Turns)
	case RolloutObservedType:
		var o RolloutObserved
		o, err = Data[RolloutObserved](e)
		r.observed(o)
		used = o.RunningTime()
	case RolloutRatedType:
		r.Rated, err = data[RolloutRated](e)
	case WorkspaceCalledType:
		err = r.called(e)
	case WorkspaceAnsweredType:
		err = r.callAnswered(e)
	case StepFinishedType:
		err = r.stepFinished(e)
	case StepScoredType:
		err = r.stepScored(e)
	case RolloutFinishedType:
		r.Finished, err = data[RolloutFinished](e)
	case RolloutScoredType:
		r.Scored, err = data[RolloutScored](e)
	case RolloutFailedType:
		r.Failed, err = data[RolloutFailed](e)
	case RolloutRetriedType:
		err = r.retried(e)
	}
	if r.Progress.Apply(e) {
		r.Tries = 0
		r.Clock.Move(e, used)
	}
	r.Tail = e.Seq
	return err
}

func (r *Rollout) retried(e Event) error {
	retried, err := Data[RolloutRetried](e)
	if retried.Behind == 0 {
		r.Tries++
		r.advanced = 0
		return err
	}
	r.Restarts++
	r.Clock.Move(e, 0)
	return err
}

func data[T any](e Event) (*T, error) {
	v, err := Data[T](e)
	return &v, err
}

// Over reports whether the rollout has its outcome.
func (r *Rollout) Over() bool { return r.Scored != nil || r.Failed != nil }

// LastTurn is the last sampled turn, nil before the first.
func (r *Rollout) LastTurn() *TurnSampled {
	if len(r.Turns) == 0 {
		return nil
	}
	return &r.Turns[len(r.Turns)-1]
}

// AwaitsTools reports whether the last turn's tool calls are still to be answered.
func (r *Rollout) AwaitsTools() bool {
	last := r.LastTurn()
	if last == nil || len(last.ToolCalls) == 0 {
		return false
	}
	_, answered := r.Tools.Get(last.Turn)
	return !answered
}

// LastTools is the last answer of the tool runner, nil before the first.
func (r *Rollout) LastTools() *ToolsCompleted {
	for i := len(r.Turns) - 1; i >= 0; i-- {
		if t, ok := r.Tools.Get(r.Turns[i].Turn); ok {
			return &t
		}
	}
	return nil
}

// Elsewhere reports whether a harness or an agent makes the rollout, and not Rondo's own loop.
func (r *Rollout) Elsewhere() bool { return External(r.ID) || len(r.Calls) > 0 }

// WorkspaceAfter is the change against the snapshot with which a turn left the workspace, nil for
// none. Of outsiders' and agents' rollouts only the end is known.
func (r *Rollout) WorkspaceAfter(turn int) (*storage.Ref, error) {
	last := r.LastTurn()
	switch {
	case r.Elsewhere():
		if r.Finished == nil || turn != r.End() {
			return nil, fmt.Errorf("rollout %s ran elsewhere, or is an agent's: only how its workspace was at its end is known", r.ID)
		}
		return r.Finished.Workspace, nil
	case last == nil:
		return nil, fmt.Errorf("rollout %s has no turn yet", r.ID)
	case turn < 0 || turn > last.Turn:
		return nil, fmt.Errorf("turn %d: rollout %s has %d turns, counted from 0", turn, r.ID, len(r.Turns))
	case turn == last.Turn && r.AwaitsTools():
		return nil, fmt.Errorf("turn %d of rollout %s: its tool calls are not answered", turn, r.ID)
	}
	return r.leftBy(turn), nil
}

// End is the last turn of a finished episode that ran elsewhere, or was an agent's: of those
// that are not left behind.
func (r *Rollout) End() int {
	if taken := r.Taken(); len(taken) < len(r.Turns) && len(taken) > 0 {
		return taken[len(taken)-1].Turn
	}
	return r.Finished.Turns - 1
}

// Fork is what a rollout begins with that goes on behind one of this one's turns. A turn whose
// tools have not answered, or that ended the rollout, leaves nothing to go on with.
func (r *Rollout) Fork(turn int, limits runfile.Limits) (RolloutCopied, error) {
	var c RolloutCopied
	switch {
	case r.Elsewhere():
		return c, fmt.Errorf("rollout %s ran elsewhere, or is an agent's: only what Rondo's own loop did can be forked",
			r.ID)
	case len(r.Observed) > 0:
		return c, fmt.Errorf("rollout %s is in an environment, which cannot be forked", r.ID)
	case turn < 0 || turn >= len(r.Turns):
		return c, fmt.Errorf("turn %d: rollout %s has %d turns, counted from 0", turn, r.ID, len(r.Turns))
	case r.StepOf(turn) > 0:
		return c, fmt.Errorf("turn %d of rollout %s is of its step %d: only the first step's turns can be forked, as a fork has no verdicts on steps",
			turn, r.ID, r.StepOf(turn)+1)
	case len(r.Turns[turn].ToolCalls) == 0 && (r.Turns[turn].Summary == nil || r.Turns[turn].RepeatedText() == ""):
		return c, fmt.Errorf("turn %d ended rollout %s: there is nothing to go on with", turn, r.ID)
	case turn+1 >= limits.Turns:
		return c, fmt.Errorf("turn %d: rollouts of run %s have at most %d turns, so none is left behind it", turn,
			r.Run, limits.Turns)
	}
	if last := r.Turns[turn]; last.Summary == nil && last.Used() >= limits.Tokens {
		return c, fmt.Errorf("turn %d: rollouts of run %s end at %d tokens, which it has used up", turn, r.Run,
			limits.Tokens)
	}
	for _, t := range r.Turns[:turn+1] {
		c.Turns = append(c.Turns, t)
		if len(t.ToolCalls) == 0 {
			continue
		}
		answered, ok := r.Tools.Get(t.Turn)
		if !ok {
			return c, fmt.Errorf("turn %d of rollout %s: its tool calls are not answered", t.Turn, r.ID)
		}
		c.Tools = append(c.Tools, answered)
	}
	return c, nil
}

// Begin lets a fork begin with what it has of its origin.
func (r *Rollout) Begin(c RolloutCopied) {
	r.Turns, r.Copied = c.Turns, len(c.Turns)
	for _, t := range c.Tools {
		r.Tools = r.Tools.Add(t)
	}
}

// Next makes the event that follows the chain's last link.
func (r *Rollout) Next(t Type, ordinal string, data any) (Event, error) {
	e, err := New(r.Run, t, r.ID, ordinal, data)
	e.Prev = r.Tail
	return e, err
}

// Fail makes the terminal failure that follows the chain's last link.
func (r *Rollout) Fail(stage, class string, cause error) (Event, error) {
	return r.Next(RolloutFailedType, "0", NewRolloutFailed(stage, class, cause))
}

// NewRolloutFailed is the payload of a failure; texts that quote foreign output are cut.
func NewRolloutFailed(stage, class string, cause error) RolloutFailed {
	return RolloutFailed{Stage: stage, Class: class, Message: clip(wording.Plain(cause).Error())}
}

// Retry makes the fact of a failed try, or the terminal failure when tries are used up.
func (r *Rollout) Retry(limits runfile.Limits, stage, class string, cause error) (e Event, final bool, err error) {
	try := r.Tries + 1
	if try >= limits.Tries {
		e, err = r.Fail(stage, class, fmt.Errorf("%w (%d tries)", cause, try))
		return e, true, err
	}
	ordinal := fmt.Sprintf("%s-%d-%d", stage, r.progress(), try)
	e, err = r.Next(RolloutRetriedType, ordinal, RolloutRetried{Stage: stage, Class: class,
		Message: clip(wording.Plain(cause).Error()), Try: try})
	return e, false, err
}

// Restart makes the fact that the run's agent is started anew behind the recorded turns, because of
// a loss that is the machine's.
func (r *Rollout) Restart(class string, cause error) (Event, error) {
	n := r.Restarts + 1
	return r.Next(RolloutRetriedType, fmt.Sprintf("agent-%d", n), RolloutRetried{Stage: StageTools, Class: class,
		Message: clip(wording.Plain(cause).Error()), Try: n, Behind: len(r.Turns)})
}

// progress grows with every turn and every piece of one, with every answered call of a harness, and
// with every end and verdict of a step, so that tries are told apart.
func (r *Rollout) progress() int {
	n := len(r.Turns) + r.pieces + 2*len(r.Steps) + len(r.Answers)
	if r.StepToScore() != nil {
		n--
	}
	return n
}

// clip keeps error texts that quote foreign output at a bounded size, and free of
// this process's credentials.
func clip(s string) string {
	s = wording.Clean(s)
	const most = 2000
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
