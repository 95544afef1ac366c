package generator

import (
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// opening are the messages before the first turn: the run's system prompt, which tells the model where it is, and the task's own words.
func opening(system *string, task runfile.TaskSpec) []inference.Message {
	prompt := runfile.DefaultSystemPrompt
	if system != nil {
		prompt = *system
	}
	words := inference.Message{Role: "user", Content: task.InStep(0).Instruction}
	if prompt == "" {
		return []inference.Message{words}
	}
	return []inference.Message{{Role: "system", Content: strings.ReplaceAll(prompt, "{workdir}", task.Workdir)}, words}
}

// conversation renders a rollout as chat messages.
func conversation(system *string, task runfile.TaskSpec, r *events.Rollout) []inference.Message {
	messages := opening(system, task)
	asked := 0 // the step whose instruction stands last
	for i, turn := range r.Turns {
		if in := r.StepOf(i); in > asked {
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
	if asked < len(r.Steps) {
		messages = append(messages, instruction(task, len(r.Steps)))
	}
	return messages
}

// instruction is what the agent is asked in a step behind the first.
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
