// Package generator asks the inference server for the turns of each rollout and closes the episode
// with its trajectory file.
package generator

import (
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// action is what a rollout needs from the generator next.
type action int

const (
	nothing action = iota // somebody else's turn, or the rollout is over
	sample                // ask for a turn
	endStep               // end a stage of the task, which is scored then
	finish                // end the episode
	endLost               // end the rollout: its environment has failed
	untold                // end the rollout: nobody knows why its last turn ended
)

// next decides from the folded chain alone, so that a repeated delivery finds what is still to do.
func next(r *events.Rollout, task runfile.TaskSpec, limits runfile.Limits) (action, string) {
	last := r.LastTurn()
	switch {
	case r.Over() || r.Finished != nil || r.AwaitsTools() || r.StepToScore() != nil:
		return nothing, ""
	case len(r.Steps) > 0 && r.StepBegin(len(r.Steps)) == len(r.Turns):
		return decideStage(r, task, limits)
	case last == nil:
		return sample, ""
	}
	stop := ends(r, task, limits)
	switch {
	case stop == "":
		return sample, ""
	case stop == events.StopUnknown:
		return untold, ""
	case len(task.Steps) > 0 && (stop != events.StopContext || begun(r)):
		return endStep, stop
	}
	return finish, stop
}

// ends says why the agent does not go on behind the last turn; "" when it does.
func ends(r *events.Rollout, task runfile.TaskSpec, limits runfile.Limits) string {
	last := r.LastTurn()
	switch {
	case last.FinishReason == events.FinishUnknown:
		return events.StopUnknown
	case last.FinishReason == events.FinishFiltered:
		return events.StopFiltered
	case last.Summary != nil && last.RepeatedText() == "": // nothing to go on with
		return events.StopContext
	case last.Summary == nil && len(last.ToolCalls) == 0 &&
		last.FinishReason == events.FinishLength && last.ContextLimit > 0:
		return events.StopContext
	case last.Summary == nil && len(last.ToolCalls) == 0:
		return last.Stopped()
	case r.AgentTimeLeft(task) <= 0, r.ToolTimeLeft(limits) <= 0:
		return events.StopTimeout
	}
	return exhausted(r, limits)
}

// unknownFinish is the cause of a rollout's end whose last turn nobody knows the end of: it may be
// half a turn, so that it is neither gone on with nor scored.
func unknownFinish(last *events.TurnSampled) error {
	if last.FinishWord == "" {
		return fmt.Errorf("the server does not say why turn %d ended: its answer has no finish_reason", last.Turn)
	}
	return fmt.Errorf("nobody knows why turn %d ended: the server says finish_reason %q, which is none of the words that servers are known for",
		last.Turn, last.FinishWord)
}

// exhausted names the budget of the whole rollout that is used up, "" for none.
func exhausted(r *events.Rollout, limits runfile.Limits) string {
	last := r.LastTurn()
	switch {
	case len(r.Turns) >= limits.Turns:
		return events.StopMaxTurns
	case last.Summary == nil && last.Used() >= limits.Tokens: // the prompt behind a summary is a short one
		return events.StopMaxTokens
	}
	return ""
}

// decideStage decides behind the verdict on a stage: the next instruction follows, unless there is
// none, the verdict is too low or a forfeit, a budget of the rollout or the server's context is
// used up, or the stage ended with what may be the server's doing.
func decideStage(r *events.Rollout, task runfile.TaskSpec, limits runfile.Limits) (action, string) {
	ended := r.Steps[len(r.Steps)-1]
	if len(r.Steps) >= len(task.Steps) || ended.StopReason == events.StopContext || events.Untold(ended.StopReason) ||
		ended.Verdict.Forfeit != nil || !task.Steps[ended.Step].Passes(ended.Verdict.Components) {
		return finish, ended.StopReason
	}
	if stop := exhausted(r, limits); stop != "" {
		return finish, stop
	}
	return sample, ""
}

// route says who works on a turn: nobody, the runner that holds the sandbox, or the pool.
func route(r *events.Rollout, t events.TurnSampled, pool string, needs runfile.Needs) string {
	if len(t.ToolCalls) == 0 {
		return runfile.RouteFinal
	}
	// what runs a fork's origin has no sandbox of the fork
	if tools := r.LastTools(); tools != nil && tools.Turn >= r.Copied {
		return runfile.RunnerRoute(tools.Runner, needs)
	}
	return runfile.PoolRoute(pool, needs)
}
