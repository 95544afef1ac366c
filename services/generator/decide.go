// Package generator asks the inference server for the turns of each rollout and closes the episode with its
// trajectory file.
package generator

import "github.com/rondo-rl/rondo/events"

// step is what a rollout needs from the generator next.
type step int

const (
	nothing step = iota // somebody else's turn, or the rollout is over
	sample              // ask for a turn
	finish              // end the episode
)

// next decides from the folded chain alone, so that a repeated delivery finds what is still to do.
func next(r *events.Rollout, limits events.Limits) (step, string) {
	switch last := r.LastTurn(); {
	case r.Over() || r.Finished != nil || r.AwaitsTools():
		return nothing, ""
	case last == nil:
		return sample, ""
	case len(last.ToolCalls) == 0 && last.FinishReason == "length":
		return finish, events.StopLength
	case len(last.ToolCalls) == 0:
		return finish, events.StopFinished
	case len(r.Turns) >= limits.Turns:
		return finish, events.StopMaxTurns
	case last.PromptTokens+last.CompletionTokens >= limits.Tokens:
		return finish, events.StopMaxTokens
	}
	return sample, ""
}

// route says who works on a turn: nobody, the runner that holds the sandbox, or the pool.
func route(r *events.Rollout, t events.TurnSampled, pool string, needs events.Needs) string {
	if len(t.ToolCalls) == 0 {
		return events.RouteFinal
	}
	if tools := r.LastTools(); tools != nil && tools.Turn >= r.Copied { // what runs a fork's origin has no sandbox of the fork
		return events.RunnerRoute(tools.Runner, needs)
	}
	return events.PoolRoute(pool, needs)
}
