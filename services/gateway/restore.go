package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// Bounds of arguments that are compared as JSON, in bytes and levels; the client's words stand where they are larger.
const (
	maxCompared = 256 << 10
	maxLevels   = 100
)

// restore puts the rollout's own messages back where a client has written a recorded turn's calls anew, or left its reasoning out: else the prompt would not repeat what was sampled, and a new
// sample would begin. A turn is found by the ids of its calls, among the turns of this rollout alone. Whatever else the client has changed stands.
func (a *ask) restore(turns []events.TurnSampled) error {
	byIDs := map[string][]int{}
	for i, t := range turns {
		if key, ok := callKey(t.ToolCalls); ok {
			byIDs[key] = append(byIDs[key], i)
		}
	}
	if len(byIDs) == 0 {
		return nil
	}
	changed := false
	var ends []int
	for i := range a.Conversation {
		m := &a.Conversation[i]
		key, ok := callKey(m.ToolCalls)
		found := byIDs[key]
		if !ok || m.Role != "assistant" || len(found) == 0 {
			continue
		}
		if len(found) > 1 { // servers may use ids again: the conversation says which turn it is, or nothing does
			if ends == nil {
				ends = newTree(turns).ends(a.Conversation)
			}
			found = slices.DeleteFunc(slices.Clone(found), func(t int) bool { return ends[t] != i+1 })
			slices.Reverse(found) // the last one is continued
		}
		n := slices.IndexFunc(found, func(t int) bool { return repeats(*m, turns[t]) })
		if n < 0 {
			continue
		}
		at := found[n]
		raw, ok, err := asRecorded(a.Messages[i], turns[at])
		if err != nil {
			return err
		}
		if ok {
			a.Messages[i], m.Content, m.ToolCalls, changed = raw, turns[at].Content, turns[at].ToolCalls, true
		}
	}
	if changed {
		a.Join()
	}
	return nil
}

// callKey is the ids of calls as one; ok is false where there are none, or one has none.
func callKey(calls []events.ToolCall) (key string, ok bool) {
	var ids []string
	for _, c := range calls {
		if c.ID == "" {
			return "", false
		}
		ids = append(ids, c.ID)
	}
	text, err := json.Marshal(ids)
	return string(text), err == nil && len(ids) > 0
}

// repeats reports whether a message says what a turn said: the same words but for white space and thoughts before them, and the same calls with the same values.
func repeats(m events.PromptMessage, turn events.TurnSampled) bool {
	words, own := strings.TrimSpace(m.Content), turn.Content
	if at := strings.LastIndex(own, events.EndOfThoughts); at >= 0 && words != strings.TrimSpace(own) {
		own = own[at+len(events.EndOfThoughts):]
	}
	return words == strings.TrimSpace(own) && slices.EqualFunc(m.ToolCalls, turn.ToolCalls, func(x, y events.ToolCall) bool {
		return x.Name == y.Name && sameArguments(inference.Arguments(x.Arguments), inference.Arguments(y.Arguments))
	})
}

// asRecorded is a message for the server with a turn's words, calls and reasoning. ok is false where the client gives it other reasoning.
func asRecorded(raw json.RawMessage, turn events.TurnSampled) (message json.RawMessage, ok bool, err error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, false, err
	}
	recorded := ""
	if turn.Reasoning != nil {
		recorded = turn.Reasoning.Text
	}
	for _, field := range []string{"reasoning", "reasoning_content"} {
		var said string
		if json.Unmarshal(orEmpty(fields[field]), &said) != nil || said != "" && strings.TrimSpace(said) != strings.TrimSpace(recorded) {
			return nil, false, nil
		}
		delete(fields, field)
	}
	own := inference.Message{Role: "assistant", Content: turn.Content, Thoughts: inference.ThoughtsOf(turn.Reasoning)}
	for _, c := range turn.ToolCalls {
		own.ToolCalls = append(own.ToolCalls, inference.ToolCall{ID: c.ID, Type: "function", Function: inference.Function{Name: c.Name, Arguments: inference.Arguments(c.Arguments).ForServer()}})
	}
	text, err := inference.Encode(own)
	if err != nil {
		return nil, false, err
	}
	back := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &back); err != nil {
		return nil, false, err
	}
	if said, err := dialects.ContentText(fields["content"]); own.Parts == nil && err == nil && said == turn.Content {
		delete(back, "content") // nothing, or a list of parts, as the client has it
	}
	maps.Copy(fields, back)
	message, err = inference.Encode(fields)
	return message, true, err
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// sameArguments reports whether two texts hold the same JSON values: in any order of keys, with any spaces and escapes. Numbers are the same where they are written alike: 1 and 1.0 are two
// values to a tool that tells integers apart. A key that is there twice has no one value.
func sameArguments(x, y inference.Arguments) bool {
	if x == y {
		return true
	}
	if len(x) > maxCompared || len(y) > maxCompared {
		return false
	}
	one, ok := valueOf(x.ForServer())
	other, known := valueOf(y.ForServer())
	return ok && known && sameValue(one, other)
}

// valueOf reads a JSON value; ok is false for one that cannot be compared.
func valueOf(text inference.Arguments) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	value, ok = nextValue(d, 0)
	return value, ok && !d.More()
}

func nextValue(d *json.Decoder, level int) (any, bool) {
	token, err := d.Token()
	if err != nil || level > maxLevels {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, ok := nextValue(d, level+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err == nil
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			key, _ := d.Token()
			name, ok := key.(string)
			if _, twice := object[name]; !ok || twice || strings.ContainsRune(name, utf8.RuneError) {
				return nil, false
			}
			if object[name], ok = nextValue(d, level+1); !ok {
				return nil, false
			}
		}
		_, err := d.Token()
		return object, err == nil
	}
	text, is := token.(string)
	return token, !is || !strings.ContainsRune(text, utf8.RuneError) // half a character reads as that, whichever it is
}

func sameValue(x, y any) bool {
	switch x := x.(type) {
	case []any:
		list, is := y.([]any)
		return is && slices.EqualFunc(x, list, sameValue)
	case map[string]any:
		object, is := y.(map[string]any)
		return is && maps.EqualFunc(x, object, sameValue)
	}
	switch y.(type) {
	case []any, map[string]any:
		return false
	}
	return x == y
}
