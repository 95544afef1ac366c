package generator

import (
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// opening are the messages before a turn that nothing was said before: the run's system prompt,
// which tells the model where it is, and the words of the task, or of its step. Behind a summary
// they end with that: some chat templates take no second message of a user.
func opening(system string, task runfile.TaskSpec, r *events.Rollout, turn int) []inference.Message {
	words := instruction(task, r.StepOf(turn))
	if given := userMessages(r, -1); len(given) > 0 {
		words = given[0]
	}
	if turn > 0 {
		words.Content += behindInstruction + r.Turns[turn-1].RepeatedText()
	}
	if system == "" {
		return []inference.Message{words}
	}
	return []inference.Message{{Role: "system", Content: strings.ReplaceAll(system, "{workdir}", task.Workdir)}, words}
}

// conversation renders a rollout as chat messages, from its last summary on.
func conversation(cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]inference.Message, inference.Written) {
	messages, written, asked := history(cfg, task, r)
	if asked < len(r.Steps) {
		messages = append(messages, instruction(task, len(r.Steps)))
	}
	return messages, written
}

// instruction is what the agent is asked in a step; a task without steps has one.
func instruction(task runfile.TaskSpec, step int) inference.Message {
	return inference.Message{Role: "user", Content: task.InStep(step).Instruction}
}

// toolDefinitions is what every request of a run offers; it never changes.
func (s *Service) toolDefinitions(cfg runfile.RunConfig, task runfile.TaskSpec) ([]inference.Tool, error) {
	if cfg.Environment != nil || !task.HasWorkspace() {
		return environmentTools(cfg.Environment)
	}
	set, err := s.tools.Set(cfg.ToolSettings())
	if err != nil {
		return nil, err
	}
	var offered []inference.Tool
	for _, d := range set.Definitions() {
		offered = append(offered, inference.Tool{Type: "function",
			Function: inference.Description{Name: d.Name, Description: d.Description, Parameters: d.Parameters}})
	}
	return offered, nil
}
