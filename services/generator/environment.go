package generator

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// nextIn is next of a run, whose environment may have the word. It answers each turn, also one
// behind which a limit is reached: the reward is its to give.
func nextIn(cfg runfile.RunConfig, r *events.Rollout, task runfile.TaskSpec) (action, string) {
	if cfg.Environment == nil {
		return next(r, task, cfg.Limits)
	}
	said := r.LastObserved()
	switch {
	case r.Over() || r.Finished != nil:
		return nothing, ""
	case len(r.Turns) > 0 && r.LastTurn().FinishReason == events.FinishUnknown:
		return untold, ""
	case r.AwaitsEnvironment():
		return nothing, ""
	case said.Failed != "":
		return endLost, said.Failed
	case said.Done:
		return finish, events.StopFinished
	case len(r.Turns) == 0:
		return sample, ""
	}
	if r.AgentTimeLeft(task) <= 0 {
		return finish, events.StopTimeout
	}
	if stop := exhausted(r, cfg.Limits); stop != "" {
		return finish, stop
	}
	return sample, ""
}

// routeIn is route of a run, whose environment may be the one that works on turns.
func routeIn(cfg runfile.RunConfig, r *events.Rollout, t events.TurnSampled, task runfile.TaskSpec) string {
	if cfg.Environment != nil && t.FinishReason != events.FinishUnknown {
		return runfile.RouteEnvironment
	}
	return route(r, t, cfg.Pool, task.Needs())
}

// environmentTools are those that the run file names; nil where there is no environment.
func environmentTools(e *runfile.Environment) ([]inference.Tool, error) {
	if e == nil {
		return nil, nil
	}
	var offered []inference.Tool
	for _, t := range e.Tools {
		parameters, err := t.Arguments().Document()
		if err != nil {
			return nil, err
		}
		offered = append(offered, inference.Tool{Type: "function",
			Function: inference.Description{Name: t.Name, Description: t.Description, Parameters: parameters}})
	}
	return offered, nil
}

// userMessages are the messages of a user that the environment has behind a turn.
func userMessages(r *events.Rollout, turn int) []inference.Message {
	var messages []inference.Message
	for _, m := range r.ObservedAfter(turn, "user") {
		messages = append(messages, inference.Message{Role: m.Role, Content: m.Content})
	}
	return messages
}
