package inference

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// TestContentParts: thoughts in a list of parts are recorded as reasoning, and the list goes back
// as it came. What is no such list fails the try.
func TestContentParts(t *testing.T) {
	thought := func(text string) string {
		return `{"type":"thinking","thinking":[{"type":"text","text":"` + text + `"}]}`
	}
	for name, c := range map[string]struct {
		content, words, thoughts string
		back                     bool // as the list
		wrong                    string
	}{
		"mistral": {`[` + thought("hm") + `,{"type":"text","text":"Done."}]`, "Done.", "hm", true, ""},
		"closed":  {`[{"type":"thinking","thinking":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"closed":true}]`, "", "ab", true, ""},
		"thoughts as a text": {`[{"type":"thinking","thinking":"hm","signature":"<s>"},{"type":"text","text":"x"}]`,
			"x", "hm", true, ""},
		"text alone":        {`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, "ab", "", false, ""},
		"empty":             {`[]`, "", "", false, ""},
		"null":              {`null`, "", "", false, ""},
		"a text":            {`"Done."`, "Done.", "", false, ""},
		"no thoughts in it": {`[{"type":"thinking"},{"type":"text","text":"x"}]`, "x", "", false, ""},
		"an image":          {`[{"type":"image_url","image_url":{}}]`, "", "", false, `type "image_url"`},
		"thoughts in it": {`[{"type":"thinking","thinking":[` + thought("hm") + `]}]`, "", "", false,
			`thinking[0]: a part of type "thinking"`},
		"an object":  {`{"type":"text"}`, "", "", false, "cannot unmarshal object"},
		"a number":   {`[{"type":"thinking","thinking":7}]`, "", "", false, "want a list"},
		"numbers":    {`[1,2]`, "", "", false, "want a list"},
		"null parts": {`[null]`, "", "", false, `type ""`},
		"too many":   {`[` + strings.Repeat(`{},`, maxContentParts) + `{}]`, "", "", false, "more than"},
		"too many thoughts": {`[{"type":"thinking","thinking":[` +
			strings.Repeat(`{"type":"text"},`, maxContentParts) + `{}]}]`, "", "", false, "more than"},
		"too much": {`[` + thought(strings.Repeat("x", events.MaxReasoning)) + `]`, "", "", false,
			"bytes of reasoning, at most"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Response
			err := json.Unmarshal([]byte(`{"choices":[{"message":{"role":"assistant","content":`+c.content+`}}]}`), &r)
			var turn events.TurnSampled
			if err == nil {
				turn, _, err = r.Turn(0, 0, time.Now())
			}
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("%v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil || turn.Content != c.words || (turn.Reasoning == nil) != (c.thoughts == "") ||
				turn.Reasoning != nil && turn.Reasoning.Text != c.thoughts {
				t.Fatalf("the turn is %+v with %+v: %v", turn, turn.Reasoning, err)
			}
			body, err := json.Marshal(turn) // over the log
			var read events.TurnSampled
			if err == nil {
				err = json.Unmarshal(body, &read)
			}
			back, wrong := Encode(Message{Role: "assistant", Content: read.Content,
				Thoughts: thoughtsOf(read.Reasoning)})
			if err != nil || wrong != nil {
				t.Fatal(err, wrong)
			}
			var sent struct {
				Content json.RawMessage `json:"content"`
			}
			text, _ := Encode(c.words)
			want := string(text)
			if c.back {
				want = c.content
			}
			if err := json.Unmarshal(back, &sent); err != nil ||
				plainJSON(t, sent.Content) != plainJSON(t, []byte(want)) {
				t.Errorf("goes back as %s: %v", back, err)
			}
		})
	}
}

func plainJSON(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(v)
	return string(body)
}
