package generator

import (
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// opening are the messages before a turn that nothing was said before: the run's system prompt, which tells the model where it is, and the words of the
// task, or of its step. Behind a summary they end with that: some chat templates take no second message of a user.
func opening(system *string, task runfile.TaskSpec, r *events.Rollout, turn int) []inference.Message {
	prompt := runfile.DefaultSystemPrompt
	if system != nil {
		prompt = *system
	}
	words := instruction(task, r.StepOf(turn))
	if turn > 0 {
		words.Content += behindInstruction + r.Turns[turn-1].Said()
	}
	if prompt == "" {
		return []inference.Message{words}
	}
	return []inference.Message{{Role: "system", Content: strings.ReplaceAll(prompt, "{workdir}", task.Workdir)}, words}
}

// conversation renders a rollout as chat messages, from its last summary on.
func conversation(system *string, task runfile.TaskSpec, r *events.Rollout) []inference.Message {
	messages, asked := history(system, task, r)
	if asked < len(r.Steps) {
		messages = append(messages, instruction(task, len(r.Steps)))
	}
	return messages
}

// history is the conversation up to the last turn's answers, and the step whose instruction stands last in it.
func history(system *string, task runfile.TaskSpec, r *events.Rollout) (messages []inference.Message, asked int) {
	from := afterSummary(r, len(r.Turns))
	asked = r.StepOf(from)
	messages = append(make([]inference.Message, 0, 2*(len(r.Turns)-from)+len(r.Steps)+3), opening(system, task, r, from)...)
	for i := range r.Turns[from:] {
		turn := &r.Turns[from+i] // hundreds of bytes, hundreds of times
		if in := r.StepOf(from + i); in > asked {
			asked = in
			messages = append(messages, instruction(task, in))
		}
		m := inference.Message{Role: "assistant", Content: turn.Content, Thoughts: inference.ThoughtsOf(turn.Reasoning)}
		for _, c := range turn.ToolCalls {
			m.ToolCalls = append(m.ToolCalls, inference.ToolCall{ID: c.ID, Type: "function", Function: inference.Function{Name: c.Name, Arguments: inference.Arguments(c.Arguments).ForServer()}})
		}
		messages = append(messages, m)
		for _, result := range r.Tools[turn.Turn].Results {
			messages = append(messages, inference.Message{Role: "tool", ToolCallID: result.CallID, Content: result.Content})
		}
	}
	return messages, asked
}

// instruction is what the agent is asked in a step; a task without steps has one.
func instruction(task runfile.TaskSpec, step int) inference.Message {
	return inference.Message{Role: "user", Content: task.InStep(step).Instruction}
}

// toolDefinitions is what every request of a run offers; it never changes.
func (s *Service) toolDefinitions(cfg runfile.RunConfig) ([]inference.Tool, error) {
	set, err := s.tools.Of(cfg)
	if err != nil {
		return nil, err
	}
	var offered []inference.Tool
	for _, d := range set.Definitions() {
		offered = append(offered, inference.Tool{Type: "function", Function: inference.Description{Name: d.Name, Description: d.Description, Parameters: d.Parameters}})
	}
	return offered, nil
}
