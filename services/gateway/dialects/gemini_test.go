package dialects

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestGeminiReads: a request becomes that of a chat, in either spelling, and answers to calls
// find these without an id.
func TestGeminiReads(t *testing.T) {
	a, err := Gemini{Model: "m"}.Read([]byte(`{"system_instruction":{"role":"user","parts":[{"text":"S"},{"text":"T"}]},"contents":[{"role":"user","parts":[{"text":"U"}]},
		{"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"name":"f","args":{"x":1}}},{"functionCall":{"name":"g"}},{"functionCall":{"id":"own","name":"f","args":{}}}]},
		{"role":"user","parts":[{"text":"and"},{"functionResponse":{"name":"f","response":{"output":"first"}}},{"functionResponse":{"name":"g","response":{"output":"x","error":"y"}}},
		{"functionResponse":{"name":"f","response":{"output":3}}}]}],
		"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"type":{"type":"STRING","nullable":true,"minLength":"2"},
		"l":{"type":"ARRAY","items":{"anyOf":[{"type":"INTEGER"},{"type":"NUMBER"}]}}},"propertyOrdering":["l","type"]}},
		{"name":"g","parameters_json_schema":{"type":["object"],"a_b":1}}]},{"googleSearch":{}}],
		"generation_config":{"temperature":0.5,"top_k":3.0,"topP":0.9,"max_output_tokens":9,"stopSequences":["x"],"thinkingConfig":{"includeThoughts":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range a.Conversation {
		text := m.Role + ":" + m.Content + m.ToolCallID
		for _, c := range m.ToolCalls {
			text += " " + c.ID + c.Name + c.Arguments
		}
		said = append(said, text)
	}
	want := []string{"system:ST", "user:U", `assistant: call-1f{"x":1} call-2g ownf{}`, "tool:firstcall-1",
		`tool:{"output":"x","error":"y"}call-2`, `tool:{"output":3}own`, "user:and"}
	if !slices.Equal(said, want) {
		t.Errorf("the conversation is %q, want %q", said, want)
	}
	if got, want := string(a.Spelled),
		`{"max_tokens":9,"model":"m","stop":["x"],"temperature":0.5,"thinking":{"includeThoughts":true},"top_k":3,"top_p":0.9}`; got != want {
		t.Errorf("it samples by %s, want %s", got, want)
	}
	wantTools := `[{"type":"function","function":{"name":"f","description":"","parameters":{"properties":{"l":{"items":{"anyOf":[{"type":"integer"},{"type":"number"}]},"type":"array"},` +
		`"type":{"minLength":2,"type":["string","null"]}},"type":"object"}}},{"type":"function","function":{"name":"g","description":"","parameters":{"type":["object"],"a_b":1}}}]`
	if got := string(a.Forward["tools"]); got != wantTools {
		t.Errorf("the tools are %s, want %s", got, wantTools)
	}
	if !slices.Equal(a.Withheld, []string{"googleSearch"}) || a.MaxTokens != 9 || !a.thoughts {
		t.Errorf("read %+v", a)
	}
	deep := `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f","parameters":` +
		strings.Repeat(`{"items":`, maxSchema+2) + `{}` +
		strings.Repeat("}", maxSchema+2) + `}]}]}`
	if _, err := (Gemini{}).Read([]byte(deep)); err == nil ||
		!strings.Contains(err.Error(), "parameters: want objects, at most 64") {
		t.Errorf("a deep schema: %v", err)
	}
}

// TestGeminiAnswers: an answer says the same whole and in pieces, and an end that Gemini has no
// word for is none of the model's.
func TestGeminiAnswers(t *testing.T) {
	n := &Answer{ID: "r.x-0-1", Model: "m", Reasoning: "hm",
		Turn: events.TurnSampled{Content: strings.Repeat("漢", 3000), FinishReason: events.FinishToolCalls,
			PromptTokens: 3, CompletionTokens: 2,
			ToolCalls: []events.ToolCall{{ID: "c", Name: "f", Arguments: `{"x":1}`},
				{ID: "d", Name: "g", Arguments: "x"}}}}
	type answer struct {
		Candidates []struct {
			Content struct {
				Parts []struct {
					Text         string
					Thought      bool
					FunctionCall json.RawMessage
				}
			}
			FinishReason, FinishMessage string
		}
		UsageMetadata *struct{ TotalTokenCount int }
	}
	said := func(pieces ...any) string {
		var b strings.Builder
		for i, data := range pieces {
			raw, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			var a answer
			if err := json.Unmarshal(raw, &a); err != nil {
				t.Fatal(err)
			}
			c := a.Candidates[0]
			for _, p := range c.Content.Parts {
				if p.Thought {
					b.WriteString("thought:")
				}
				b.WriteString(p.Text + string(p.FunctionCall))
			}
			if last := i == len(pieces)-1; last != (c.FinishReason != "") || last != (a.UsageMetadata != nil) {
				t.Errorf("piece %d of %d ends by %q, with usage %v", i, len(pieces), c.FinishReason, a.UsageMetadata)
			}
			b.WriteString(c.FinishReason + c.FinishMessage)
		}
		return b.String()
	}
	for _, thoughts := range []bool{false, true} {
		var pieces []any
		for _, p := range piecesOf(Gemini{}, &Request{Stream: true, thoughts: thoughts}, n) {
			pieces = append(pieces, p.Data)
		}
		whole, streamed := said(Gemini{}.Whole(&Request{thoughts: thoughts}, n)), said(pieces...)
		want := n.Turn.Content +
			`{"id":"c","name":"f","args":{"x":1}}{"id":"d","name":"g","args":{"malformed_arguments":"x"}}STOP`
		if thoughts {
			want = "thought:hm" + want
		}
		if whole != want || streamed != want {
			t.Errorf("whole: %q\nin pieces: %q\nwant: %q", whole, streamed, want)
		}
	}
	for reason, want := range map[string]string{events.FinishStop: "STOP", events.FinishLength: "MAX_TOKENS",
		events.FinishRepetition: "MAX_TOKENS", events.FinishFiltered: "SAFETY", "gave_up": "OTHERgave_up"} {
		if got := said(Gemini{}.Whole(&Request{},
			&Answer{Turn: events.TurnSampled{FinishReason: reason}})); got != want {
			t.Errorf("%s ends by %q, want %q", reason, got, want)
		}
	}
}
