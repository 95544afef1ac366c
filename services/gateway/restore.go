package gateway

import (
	"encoding/json"
	"maps"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// restore puts the rollout's own answers back that a request repeats up to the turn that it goes
// on with: a client may have written their calls anew, or left their reasoning out, and then the
// prompt would not repeat what was sampled. Results of their calls get the ids that these had.
// Whatever else the client has changed stands.
func (a *ask) restore(t *tree, after int, ends []int) error {
	if after < 0 {
		return nil
	}
	own := map[int]*events.TurnSampled{} // by the message that repeats it
	for i := &after; i != nil; i = t.turns[*i].After {
		own[ends[*i]-1] = &t.turns[*i]
	}
	var were, are []events.ToolCall // the calls of the answer before, as the client has them and as they were recorded
	for i := range a.Conversation {
		m := &a.Conversation[i]
		if call := callOf(*m, were); m.Role == "tool" && call >= 0 && are[call].ID != m.ToolCallID {
			if err := a.set(i, map[string]any{"tool_call_id": are[call].ID}); err != nil {
				return err
			}
			m.ToolCallID = are[call].ID
		}
		if m.Role != roleAssistant {
			continue
		}
		were, are = m.ToolCalls, m.ToolCalls
		turn := own[i]
		if turn == nil {
			continue
		}
		raw, err := asRecorded(a.Messages[i], turn)
		if err != nil {
			return err
		}
		are = turn.ToolCalls
		a.Messages[i], m.Content, m.ToolCalls = raw, turn.Content, turn.ToolCalls
	}
	a.Join()
	return nil
}

// set sets fields of a message for the server.
func (a *ask) set(message int, values map[string]any) (err error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(a.Messages[message], &fields); err != nil {
		return err
	}
	for name, value := range values {
		if fields[name], err = inference.Encode(value); err != nil {
			return err
		}
	}
	a.Messages[message], err = inference.Encode(fields)
	return err
}

// asRecorded is a message for the server with a turn's words, calls and reasoning.
func asRecorded(raw json.RawMessage, turn *events.TurnSampled) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	delete(fields, "reasoning")
	delete(fields, "reasoning_content")
	own := inference.Recorded(turn)
	text, err := inference.Encode(own)
	if err != nil {
		return nil, err
	}
	back := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &back); err != nil {
		return nil, err
	}
	if said, err := dialects.ContentText(fields["content"]); own.Parts == nil && err == nil && said == turn.Content {
		delete(back, "content") // nothing, or a list of parts, as the client has it
	}
	maps.Copy(fields, back)
	return inference.Encode(fields)
}
