package gateway

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// FuzzRead: whatever a client sends is refused, or becomes a request with as many messages as are
// recorded, all of them readable.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"a"}],"n":1,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"},{"type":"image_url"}]}]}`,
		`{"max_tokens":1,"system":"s","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":null}]}]}`,
		`{"input":[{"type":"reasoning","summary":[{"text":"t"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"x"},{"type":"function_call_output","call_id":"c","output":"r"}],"text":{"format":{"type":"json_object"}}}`,
		`{"input":[{"type":"custom_tool_call","call_id":"c","name":"e","input":"x"},{"type":"local_shell_call","call_id":"d","action":{"type":"exec","command":["ls"]}},{"type":"tool_search_output","call_id":"c","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"x"}]}]}],"tools":[{"type":"custom","name":"e"},{"type":"local_shell"}]}`,
		`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"t","thought":true},{"functionCall":{"name":"f","args":{"x":1}}}]},{"parts":[{"functionResponse":{"name":"f","response":{"output":"r"}}}]}],"systemInstruction":{"parts":[{"text":"s"}]},"tools":[{"function_declarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"x":{"type":"INTEGER","nullable":true}}}}]}],"generationConfig":{"topK":3.0,"maxOutputTokens":5}}`,
		`{"input":"a","tool_choice":"auto"}`, `{`, `[]`, `null`, `{"messages":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range []dialects.Dialect{dialects.Chat{}, dialects.Messages{}, dialects.Responses{},
			dialects.Gemini{}, dialects.MessagesCount{}, dialects.GeminiCount{}} {
			a, err := d.Read(body)
			if err != nil {
				continue
			}
			var sent []struct {
				ToolCalls []struct {
					Function struct{ Arguments string }
				} `json:"tool_calls"`
			}
			if err := json.Unmarshal(a.Forward["messages"], &sent); err != nil || len(sent) == 0 ||
				len(sent) != len(a.Conversation) || a.MaxTokens < 0 {
				t.Fatalf("%T: %s: %d messages are recorded of %s: %v", d, body, len(a.Conversation),
					a.Forward["messages"], err)
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
			asked := &ask{Request: a}
			if err := asked.bind(nil); err != nil {
				t.Fatal(err)
			}
			newTree(nil).place(asked, nil, &turn)
			if !turn.NewSegment || len(turn.Prompt) != len(a.Conversation) {
				t.Fatalf("a first turn is %+v", turn)
			}
		}
	})
}
