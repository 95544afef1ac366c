package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// FuzzRead: whatever a client sends is refused, or becomes a request with as many messages as are recorded, all of them readable.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"a"}],"n":1,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"},{"type":"image_url"}]}]}`,
		`{"max_tokens":1,"system":"s","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":null}]}]}`,
		`{"input":[{"type":"reasoning","summary":[{"text":"t"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"x"},{"type":"function_call_output","call_id":"c","output":"r"}],"text":{"format":{"type":"json_object"}}}`,
		`{"input":"a","tool_choice":"auto"}`, `{`, `[]`, `null`, `{"messages":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range []dialect{chatDialect{}, messagesDialect{}, responsesDialect{}} {
			a, err := d.read(body)
			if err != nil {
				continue
			}
			var sent []struct {
				ToolCalls []struct {
					Function struct{ Arguments string }
				} `json:"tool_calls"`
			}
			if err := json.Unmarshal(a.forward["messages"], &sent); err != nil || len(sent) == 0 || len(sent) != len(a.conversation) || a.maxTokens < 0 {
				t.Fatalf("%T: %s: %d messages are recorded of %s: %v", d, body, len(a.conversation), a.forward["messages"], err)
			}
			for _, m := range sent {
				for _, c := range m.ToolCalls {
					var object map[string]json.RawMessage
					if json.Unmarshal([]byte(c.Function.Arguments), &object) != nil || object == nil {
						t.Fatalf("%T: the server gets arguments that it cannot read: %q", d, c.Function.Arguments)
					}
				}
			}
			var turn events.TurnSampled
			newTree(nil).place(a.conversation, nil, &turn)
			if !turn.NewSegment || len(turn.Prompt) != len(a.conversation) {
				t.Fatalf("a first turn is %+v", turn)
			}
		}
	})
}

// FuzzParts: a text in parts is the text, and each part is one.
func FuzzParts(f *testing.F) {
	f.Add(strings.Repeat("漢", 3000))
	f.Add(strings.Repeat("🙂x", 2500))
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(strings.Repeat(text, 1+len(text)%50), "?")
		list := slices.Collect(parts(text))
		if strings.Join(list, "") != text {
			t.Fatal("the parts are another text")
		}
		for _, p := range list {
			if len(p) == 0 || len(p) > pieceSize || strings.ToValidUTF8(p, "") != p {
				t.Fatalf("a part of %d bytes is no text", len(p))
			}
		}
	})
}
