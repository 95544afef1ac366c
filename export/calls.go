package export

import (
	"encoding/json"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Call is a tool call with its answer.
type Call struct {
	Call     events.ToolCall
	Answer   *storage.Message   // nil: not answered
	Recorded *events.ToolResult // nil where the log does not have it, as of outsiders' rollouts
}

// PairCalls finds the answer to each call of a turn: the first with its id that answers no earlier
// call, else the one at its place. left are the answers to nothing.
func PairCalls(calls []events.ToolCall, answers []storage.Message,
	recorded []events.ToolResult) (paired []Call, left []storage.Message) {
	taken, used := make([]bool, len(answers)), make([]bool, len(recorded))
	for i, c := range calls {
		p := Call{Call: c}
		if at := freeAnswer(c.ID, i, taken, func(k int) string { return answers[k].ToolCallID }); at >= 0 {
			p.Answer, taken[at] = &answers[at], true
		}
		if at := freeAnswer(c.ID, i, used, func(k int) string { return recorded[k].CallID }); at >= 0 {
			p.Recorded, used[at] = &recorded[at], true
		}
		paired = append(paired, p)
	}
	for i := range answers {
		if !taken[i] {
			left = append(left, answers[i])
		}
	}
	return paired, left
}

func freeAnswer(id string, place int, taken []bool, idOf func(int) string) int {
	for i := range taken {
		if !taken[i] && idOf(i) == id {
			return i
		}
	}
	if place < len(taken) && !taken[place] && (id == "" || idOf(place) == "") {
		return place
	}
	return -1
}

// Calls are the tool calls of a message; text that is no list of them counts as one
// call of an unknown tool.
func Calls(m storage.Message) (calls []events.ToolCall) {
	if m.ToolCalls == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(m.ToolCalls), &calls); err != nil {
		return []events.ToolCall{{Name: "unknown", Arguments: m.ToolCalls}}
	}
	return calls
}

// Thoughts returns what a model thought and what it said, whether the server separated them
// or left both in the text.
func Thoughts(m storage.Message) (reasoning, said string) {
	if m.Reasoning != "" {
		return m.Reasoning, m.Content
	}
	return splitReasoning(m.Content)
}

// splitReasoning takes what a model thought aloud, between <think> and </think> at the beginning,
// from what it said. Templates that open the block themselves leave only its end.
func splitReasoning(content string) (reasoning, said string) {
	rest := strings.TrimLeft(content, " \n\t")
	thought, said, ended := strings.Cut(rest, "</think>")
	opened := strings.HasPrefix(rest, "<think>")
	switch {
	case !ended && !opened:
		return "", content
	case !ended: // its output ended before its thoughts
		return strings.TrimSpace(strings.TrimPrefix(rest, "<think>")), ""
	}
	return strings.TrimSpace(strings.TrimPrefix(thought, "<think>")), strings.TrimLeft(said, "\n")
}
