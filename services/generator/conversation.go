package generator

import (
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// systemPrompt tells the model where it is. The task's own words follow as the user's message.
const systemPrompt = "You are a coding agent. The repository is your working directory, %s. " +
	"Use the tools to inspect it, run commands and edit files; several calls may stand in one answer. " +
	"When the task is done, answer without a tool call."

// conversation renders a rollout as chat messages.
func conversation(task events.TaskSpec, r *events.Rollout) []inference.Message {
	messages := []inference.Message{
		{Role: "system", Content: fmt.Sprintf(systemPrompt, task.Workdir)},
		{Role: "user", Content: task.InStep(0).Instruction},
	}
	asked := 0 // the step whose instruction stands last
	for i, turn := range r.Turns {
		if in := r.StepOf(i); in > asked {
			asked = in
			messages = append(messages, instruction(task, in))
		}
		m := inference.Message{Role: "assistant", Content: turn.Content}
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
func instruction(task events.TaskSpec, step int) inference.Message {
	return inference.Message{Role: "user", Content: task.InStep(step).Instruction}
}

// toolDefinitions is what every request of a run offers; it never changes.
func toolDefinitions(cfg events.RunConfig) ([]inference.Tool, error) {
	set, err := tools.NewSet(cfg)
	if err != nil {
		return nil, err
	}
	var offered []inference.Tool
	for _, d := range set.Definitions() {
		offered = append(offered, inference.Tool{Type: "function", Function: inference.Description{Name: d.Name, Description: d.Description, Parameters: d.Parameters}})
	}
	return offered, nil
}
