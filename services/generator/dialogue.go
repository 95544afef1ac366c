package generator

import (
	"slices"
	"sync"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// dialogue is what was said in a rollout since its last summary, as messages and in JSON. It
// is kept beside the fold of the rollout, so that a turn writes its own messages and not
// those of all turns before it.
type dialogue struct {
	mu       sync.Mutex
	begun    bool
	turns    int // that are in it, or before it
	asked    int // the step whose instruction stands last in it
	messages []inference.Message
	written  inference.Written
}

// history is the conversation up to the last turn's answers, and the step whose instruction stands
// last in it. What it gives is shared: messages may be added to it, and not changed.
func history(cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (messages []inference.Message, written inference.Written, asked int) {
	s := events.Note[dialogue](r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.Turns) < s.turns {
		s = &dialogue{} // who has read the rollout later was here before
	}
	if from := afterSummary(r.Turns, s.turns); !s.begun || from > s.turns {
		s.begun, s.turns, s.asked = true, from, r.StepOf(from)
		s.messages, s.written = opening(cfg.SystemPrompt, task, r, from), inference.Written{}
	}
	for ; s.turns < len(r.Turns); s.turns++ {
		s.add(task, r, s.turns)
	}
	if cfg.EndpointAPI != runfile.APITokens { // such requests hold the last messages alone, or change them
		s.write()
	}
	written = s.written
	written.JSON = slices.Clip(written.JSON)
	return slices.Clip(s.messages), written, s.asked
}

// add adds a turn's messages.
func (s *dialogue) add(task runfile.TaskSpec, r *events.Rollout, i int) {
	turn := &r.Turns[i]
	if in := r.StepOf(i); in > s.asked {
		s.asked = in
		s.messages = append(s.messages, instruction(task, in))
	}
	s.messages = append(s.messages, inference.Recorded(turn))
	for _, result := range turn.ShownResults(r.Tools.Answer(turn.Turn).Results) {
		s.messages = append(s.messages, inference.Message{Role: "tool", ToolCallID: result.CallID,
			Content: result.Content})
	}
	s.messages = append(s.messages, userMessages(r, turn.Turn)...)
}

// write writes the messages that are new. Those that cannot be written are left to the request,
// which says what is wrong.
func (s *dialogue) write() {
	text, err := inference.AppendMessages(s.written.JSON, s.messages[s.written.Messages:])
	if err == nil {
		s.written = inference.Written{Messages: len(s.messages), JSON: text}
	}
}
