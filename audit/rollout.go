package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

type rolloutState struct {
	turns  int
	shown  []events.View  // by them
	origin *events.Origin // of a fork that has not begun
	// history holds a digest of each turn and of its answers, which forks must repeat.
	history [][]byte
	// segment is the digest of the current segment's tokens, and underWay what is
	// recorded of the next turn.
	segment  hash.Hash
	underWay *events.UnderWay
	awaiting []string // ids of the calls that the last turn asked for
	steps    int      // of its task that the agent has ended
	unscored bool     // the last of them
	// observations counts the words of its environment; rated is what the
	// run's reward function says.
	observations int
	// passed: another role of its episode has the word before the last turn is answered.
	passed bool
	rated  *events.RolloutRated
	called string // the ordinal of a harness's call that is not answered
	agent  bool   // the run's agent makes the episode
	left   []int  // turns that are no part of it
	// talks are the conversations of the turns, in runs that have rules of them.
	talks    map[int]talk
	finished bool
	outcome  events.Type
	reward   float64
	version  int64 // at dispatch
	episode  events.RolloutFinished
	scored   events.RolloutScored
	// invalidated is the sequence of the first fact that says so.
	invalidated uint64
	remarks     []remark
	taught      map[string]taught // by teacher
	hinted      map[string]hinted // by hinter
}

// remark is an annotation and its sequence.
type remark struct {
	events.RolloutAnnotated
	seq uint64
}

// rollout checks the order of an episode.
func (c *Checker) rollout(e events.Event) {
	r := c.rollouts[e.Entity]
	if r == nil {
		r = &rolloutState{}
		c.rollouts[e.Entity] = r
		if e.Type != events.RolloutStartedType {
			c.find(RuleTurns, e, "the rollout was never started")
		}
	}
	switch e.Type {
	case events.RolloutAnnotatedType:
		annotated, err := events.Data[events.RolloutAnnotated](e)
		if err != nil {
			c.find(RuleTurns, e, "%v", err)
		}
		r.remarks = append(r.remarks, remark{annotated, e.Seq})
		return
	case events.RolloutHintedType:
		c.hinter(e, r)
		return
	case events.TeacherScoredType:
		c.teacher(e, r)
		return
	case events.RolloutForkedType:
		return // what it asks for is judged where it begins
	case events.RolloutInvalidatedType:
		if r.invalidated == 0 {
			r.invalidated = e.Seq
		}
		return
	}
	if r.outcome != "" {
		c.find(RuleOutcome, e, "the rollout has its outcome already: %s", r.outcome)
	}
	if err := c.progress(r, e); err != nil {
		c.find(RuleTurns, e, "%v", err)
	}
}

// checkStated checks what an event states, where it can be read.
func checkStated[T any](e events.Event, check func(T) error) error {
	stated, err := events.Data[T](e)
	if err != nil {
		return err
	}
	return check(stated)
}

func (c *Checker) progress(r *rolloutState, e events.Event) error {
	switch e.Type {
	case events.RolloutStartedType:
		started, err := events.Data[events.RolloutStarted](e)
		r.version, r.origin = started.PolicyVersion, started.Origin
		return err
	case events.RolloutCopiedType:
		return checkStated(e, func(copied events.RolloutCopied) error { return c.copied(r, copied) })
	case events.PieceSampledType:
		return checkStated(e, r.piece)
	case events.TurnSampledType:
		turn, err := events.Data[events.TurnSampled](e)
		if err != nil {
			return err
		}
		if err := r.sampled(turn, r.agent || events.External(e.Entity)); err != nil {
			return err
		}
		return c.conversation(r, turn)
	case events.ToolsCompletedType:
		return checkStated(e, r.answered)
	case events.RolloutObservedType:
		return checkStated(e, r.observed)
	case events.RolloutRatedType:
		rated, err := events.Data[events.RolloutRated](e)
		if err == nil && (!r.finished || r.rated != nil) {
			err = errors.New("it rates a rollout that is not over, or has its rating")
		}
		r.rated = &rated
		return err
	case events.WorkspaceCalledType, events.WorkspaceAnsweredType:
		return r.workspace(e)
	case events.StepFinishedType:
		return checkStated(e, r.stepFinished)
	case events.StepScoredType:
		return checkStated(e, r.stepScored)
	case events.RolloutRetriedType:
		retried, err := events.Data[events.RolloutRetried](e)
		if err == nil && retried.Behind > 0 && (!r.agent || retried.Behind != r.turns) {
			err = fmt.Errorf("it starts an agent anew behind %d turns, but there is none, or there were %d turns",
				retried.Behind, r.turns)
		}
		return err
	case events.RolloutFinishedType:
		if r.finished || r.awaiting != nil || r.unscored || r.called != "" {
			return fmt.Errorf("it ends an episode that is over or waits for tools or for the verdict on a step")
		}
		finished, err := events.Data[events.RolloutFinished](e)
		r.finished, r.episode = true, finished
		if err == nil && r.turns > 0 && (finished.Turns != r.turns-len(r.left) || finished.Steps != r.steps) {
			err = fmt.Errorf("it says that there were %d turns and %d steps, but there were %d and %d", finished.Turns,
				finished.Steps, r.turns-len(r.left), r.steps)
		}
		if masked := r.maskedTokens(finished); err == nil && !maps.Equal(finished.Masked, masked) {
			err = fmt.Errorf("it says that its run masks %v tokens by rule, but its turns say %v", finished.Masked,
				masked)
		}
		return err
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		if err != nil {
			return err
		}
		if !r.finished {
			return fmt.Errorf("it scores an episode that is not over")
		}
		r.outcome, r.reward, r.scored = e.Type, scored.Reward, scored
	case events.RolloutFailedType:
		r.outcome = e.Type
	}
	return nil
}

// sampled checks a turn. Tools of external rollouts run elsewhere, so nobody's answer is awaited.
func (r *rolloutState) sampled(turn events.TurnSampled, external bool) error {
	if err := r.follows(turn.Turn); err != nil {
		return err
	}
	if err := r.tokens(turn); err != nil {
		return err
	}
	r.turns++
	r.shown = append(r.shown, turn.View())
	r.history = append(r.history, digest(turn))
	if external {
		return nil
	}
	for _, call := range turn.ToolCalls {
		r.awaiting = append(r.awaiting, call.ID)
	}
	return nil
}

// follows checks that a turn is the next one.
func (r *rolloutState) follows(turn int) error {
	switch {
	case r.origin != nil:
		return fmt.Errorf("turn %d comes before the fork's copied turns are complete", turn)
	case turn != r.turns:
		return fmt.Errorf("turn %d comes after %d turns", turn, r.turns)
	case r.awaiting != nil:
		return fmt.Errorf("turn %d comes before the tools of the last turn have answered", turn)
	case r.unscored:
		return fmt.Errorf("turn %d comes before the verdict on the step before it", turn)
	case r.finished:
		return fmt.Errorf("turn %d comes after the end of the episode", turn)
	}
	return nil
}

// piece checks that a piece of the next turn follows the one before, and that no answer behind the
// same prompt is begun anew.
func (r *rolloutState) piece(p events.PieceSampled) error {
	if err := r.follows(p.Turn); err != nil {
		return err
	}
	if u := r.underWay; u != nil && u.Prompt == p.Prompt && p.Offset == 0 {
		return fmt.Errorf("the answer of turn %d begins anew, though %d tokens of it are recorded", p.Turn,
			len(u.TokenIDs))
	}
	var err error
	r.underWay, err = r.underWay.Add(p)
	return err
}

// tokens checks that a turn begins with the pieces of it that are recorded behind the same prompt.
func (r *rolloutState) tokens(turn events.TurnSampled) error {
	if turn.NewSegment || r.segment == nil {
		r.segment = sha256.New()
	}
	events.HashTokens(r.segment, turn.PromptDelta)
	u := r.underWay
	r.underWay = nil
	n := 0
	if u != nil && u.Prompt == hex.EncodeToString(r.segment.Sum(nil)) {
		n = len(u.TokenIDs)
	}
	events.HashTokens(r.segment, turn.TokenIDs)
	if n > 0 && (len(turn.TokenIDs) < n || len(turn.Logprobs) < n || !slices.Equal(turn.TokenIDs[:n], u.TokenIDs) ||
		!slices.Equal(turn.Logprobs[:n], u.Logprobs)) {
		return fmt.Errorf("turn %d does not begin with the %d tokens that are recorded of it", turn.Turn, n)
	}
	return nil
}

func (r *rolloutState) answered(tools events.ToolsCompleted) error {
	var ids []string
	for _, result := range tools.Results {
		ids = append(ids, result.CallID)
	}
	if tools.Turn != r.turns-1 || !slices.Equal(ids, r.awaiting) {
		return fmt.Errorf("it answers calls %v of turn %d, but turn %d asked for %v", ids,
			tools.Turn, r.turns-1, r.awaiting)
	}
	r.awaiting = nil
	r.history = append(r.history, digest(tools))
	return nil
}

// observed checks the word of an environment, which is the opening, or about the last turn.
func (r *rolloutState) observed(o events.RolloutObserved) error {
	var ids []string
	for _, m := range o.MessagesOf("tool") {
		ids = append(ids, m.ToolCallID)
	}
	if r.finished || o.Turn != r.turns-1 || o.Turn+1 != r.observations ||
		!o.Done && o.Failed == "" && o.Next == "" && !slices.Equal(ids, r.awaiting) {
		return fmt.Errorf("the environment answers calls %v of turn %d, its word %d; but turn %d asked for %v, or the episode is over",
			ids, o.Turn, r.observations, r.turns-1, r.awaiting)
	}
	switch {
	case o.Next != "" && r.passed, !o.Held && o.Failed == "" && r.passed:
		return fmt.Errorf("it settles a second time what follows turn %d", o.Turn)
	case o.Held && !r.passed && o.Turn >= 0 && o.Failed == "":
		return fmt.Errorf("it is held, but nothing is settled behind turn %d", o.Turn)
	}
	r.history = append(r.history, digest(o))
	if r.passed = o.Next != ""; r.passed {
		return nil
	}
	r.awaiting = nil
	r.observations++
	return nil
}

// workspace checks that the calls of a harness, and their answers, come in turn.
func (r *rolloutState) workspace(e events.Event) error {
	ordinal := strings.TrimPrefix(e.ID, events.ID(e.Run, e.Type, e.Entity, ""))
	agents := !events.External(e.Entity) && ordinal == events.AgentCall
	switch {
	case !events.External(e.Entity) && !agents || r.finished:
		return fmt.Errorf("only harnesses, and a run's agent, call on workspaces, while their episode is not over")
	case agents && e.Type == events.WorkspaceCalledType && (r.agent || r.turns > 0):
		return fmt.Errorf("an agent is started once, before the first turn")
	case e.Type == events.WorkspaceCalledType && r.called != "":
		return fmt.Errorf("call %q comes before call %q is answered", ordinal, r.called)
	case e.Type == events.WorkspaceAnsweredType && r.called != ordinal:
		return fmt.Errorf("it answers call %q, but %q is under way", ordinal, r.called)
	}
	r.called, r.agent = "", agents
	if e.Type == events.WorkspaceCalledType {
		r.called = ordinal
		return nil
	}
	answered, err := events.Data[events.WorkspaceAnswered](e)
	if err != nil || answered.Agent == nil {
		return err
	}
	r.left = answered.Agent.Left
	if slices.ContainsFunc(r.left, func(turn int) bool { return turn < 0 || turn >= r.turns }) ||
		len(r.left)+answered.Agent.Recalled > r.turns {
		return fmt.Errorf("its agent had %d recorded turns again and left turns %v behind, of %d",
			answered.Agent.Recalled, r.left, r.turns)
	}
	return nil
}

func (r *rolloutState) stepFinished(ended events.StepFinished) error {
	if r.finished || r.awaiting != nil || r.unscored || ended.Step != r.steps || ended.Turns != r.turns {
		return fmt.Errorf("it ends step %d after %d turns, but there were %d steps and %d turns, or something is awaited",
			ended.Step, ended.Turns, r.steps, r.turns)
	}
	r.steps, r.unscored = r.steps+1, true
	return nil
}

func (r *rolloutState) stepScored(scored events.StepScored) error {
	if !r.unscored || scored.Step != r.steps-1 {
		return fmt.Errorf("it scores step %d, which has not ended or has its verdict", scored.Step)
	}
	r.unscored = false
	return nil
}

func digest(fact any) []byte {
	text, _ := json.Marshal(fact) // it was read from JSON
	sum := sha256.Sum256(text)
	return sum[:]
}

// copied checks that a fork begins with what its origin has had.
func (c *Checker) copied(r *rolloutState, copied events.RolloutCopied) error {
	if r.origin == nil || r.turns > 0 {
		return fmt.Errorf("the rollout is not a fork, or it has begun already")
	}
	origin, turn := c.rollouts[r.origin.Rollout], r.origin.Turn
	r.origin = nil
	for _, t := range copied.Turns {
		if err := r.sampled(t, false); err != nil {
			return err
		}
		for len(copied.Tools) > 0 && copied.Tools[0].Turn == t.Turn {
			if err := r.answered(copied.Tools[0]); err != nil {
				return err
			}
			copied.Tools = copied.Tools[1:]
		}
	}
	if r.turns != turn+1 || r.awaiting != nil || len(copied.Tools) > 0 {
		return fmt.Errorf("it has %d turns, and not all that its origin was answered up to turn %d", r.turns, turn)
	}
	if origin == nil || len(origin.history) < len(r.history) ||
		!slices.EqualFunc(origin.history[:len(r.history)], r.history, bytes.Equal) {
		return fmt.Errorf("it begins with other turns or answers than its origin has had")
	}
	return nil
}

type groupState struct {
	size      int
	completed bool
	members   []events.Member
}

// group checks a group against its members.
func (c *Checker) group(e events.Event) {
	g := c.groups[e.Entity]
	switch e.Type {
	case events.GroupOpenedType:
		opened, err := events.Data[events.GroupOpened](e)
		if err != nil {
			c.find(RuleGroup, e, "%v", err)
		}
		c.groups[e.Entity] = &groupState{size: opened.Size}
	case events.GroupCompletedType:
		completed, err := events.Data[events.GroupCompleted](e)
		switch {
		case err != nil:
			c.find(RuleGroup, e, "%v", err)
		case g == nil || g.completed:
			c.find(RuleGroup, e, "the group is not open")
		case len(completed.Members) != g.size:
			c.find(RuleGroup, e, "%d members instead of %d", len(completed.Members), g.size)
		default:
			g.completed, g.members = true, completed.Members
			c.members(e, completed.Members)
		}
	}
}

func (c *Checker) members(e events.Event, members []events.Member) {
	for _, m := range members {
		r := c.rollouts[m.Rollout]
		switch {
		case r == nil || r.outcome == "":
			c.find(RuleGroup, e, "member %s has no outcome yet", m.Rollout)
		case !m.Failed && r.outcome == events.RolloutFailedType:
			c.find(RuleGroup, e, "member %s failed and has an advantage", m.Rollout)
		case !m.Failed && r.reward != m.Reward:
			c.find(RuleGroup, e, "member %s has reward %g, but was scored %g", m.Rollout, m.Reward, r.reward)
		}
	}
}
