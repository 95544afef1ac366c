package inference

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

func TestCallIDs(t *testing.T) {
	var asked []ToolCall
	for _, id := range []string{"a", "", "a", "call_2_5", "", "call_2_1"} {
		asked = append(asked, ToolCall{ID: id, Function: Function{Name: "n"}})
	}
	seen := map[string]bool{}
	calls := toolCalls(2, asked)
	for _, c := range calls {
		if c.ID == "" || seen[c.ID] {
			t.Errorf("id %q stands twice or is empty: %+v", c.ID, calls)
		}
		seen[c.ID] = true
	}
	if calls[0].ID != "a" || calls[3].ID != "call_2_5" || len(calls) != 6 {
		t.Errorf("ids that were good were changed: %+v", calls)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ given, read, sent string }{
		{`"{\"a\":1}"`, `{"a":1}`, `{"a":1}`},
		{`{"a": 1}`, `{"a": 1}`, `{"a": 1}`},
		{`""`, "", "{}"},
		{`null`, "", "{}"},
		{`"{\"a\":"`, `{"a":`, `{"malformed_arguments":"{\"a\":"}`},
		{`"null"`, "null", `{"malformed_arguments":"null"}`},
		{`[1]`, "[1]", `{"malformed_arguments":"[1]"}`},
		{`7`, "7", `{"malformed_arguments":"7"}`},
	} {
		var a Arguments
		if err := json.Unmarshal([]byte(c.given), &a); err != nil || string(a) != c.read {
			t.Errorf("%s is read as %q, %v; want %q", c.given, a, err, c.read)
		}
		if got := a.ForServer(); string(got) != c.sent {
			t.Errorf("%s is sent as %s, want %s", c.given, got, c.sent)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0": 0, "": 0, "soon": 0, "99999999999": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute,
	} {
		t.Run(value, func(t *testing.T) {
			if got := retryAfter(value, now); got != want {
				t.Errorf("Retry-After %q is %s, want %s", value, got, want)
			}
		})
	}
}

// TestUsage: what a server counts is taken where it is a count of tokens, and spoils
// no turn where it is not.
func TestUsage(t *testing.T) {
	for text, want := range map[string]usage{
		`{"prompt_tokens": 12, "completion_tokens": 3}`:          {12, 3},
		`{"prompt_tokens": 12.0, "completion_tokens": null}`:     {12, 0},
		`{"prompt_tokens": -5, "completion_tokens": 2147483648}`: {},
		`{"prompt_tokens": "12", "completion_tokens": 3}`:        {0, 3},
		`{"prompt_tokens": 1.5, "completion_tokens": 1e300}`:     {},
		`null`:  {},
		`[]`:    {},
		`"low"`: {},
	} {
		var r Response
		if err := json.Unmarshal([]byte(`{"choices": [], "usage": `+text+`}`), &r); err != nil || r.Usage != want {
			t.Errorf("%s: %+v, %v; want %+v", text, r.Usage, err, want)
		}
	}
}

// TestFormsOfFinish: a reason that is no text, and no object with one, is a word that nobody knows.
func TestFormsOfFinish(t *testing.T) {
	for text, want := range map[string]string{
		`"stop"`: events.FinishStop, `{"type":"length"}`: events.FinishLength, `null`: events.FinishUnknown,
		`["stop"]`:          events.FinishUnknown,
		`{"reason":"stop"}`: events.FinishUnknown, `true`: events.FinishUnknown, `{"type":null}`: events.FinishUnknown,
		`0`: events.FinishUnknown,
	} {
		var c Choice
		if err := json.Unmarshal([]byte(`{"finish_reason":`+text+`}`), &c); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.ended(); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}
