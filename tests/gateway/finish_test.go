package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// saysFinish finds how an answer ended, in each dialect, whole and as a stream.
var saysFinish = map[string]func(body string) string{
	"/chat/completions": lastOf(`"finish_reason":"([^"]*)"`),
	"/messages":         lastOf(`"stop_reason":"([^"]*)"`),
	"/responses": func(body string) string {
		type response struct {
			Status  string
			Details *struct{ Reason string } `json:"incomplete_details"`
		}
		var last struct{ Response response }
		if i := strings.LastIndex(body, "\ndata: "); i >= 0 {
			body = body[i+len("\ndata: "):]
			_ = json.Unmarshal([]byte(body), &last) // what is none has no status
		} else {
			_ = json.Unmarshal([]byte(body), &last.Response)
		}
		if last.Response.Details != nil {
			return last.Response.Status + " " + last.Response.Details.Reason
		}
		return last.Response.Status
	},
}

func lastOf(pattern string) func(string) string {
	finds := regexp.MustCompile(pattern)
	return func(body string) (last string) {
		for _, found := range finds.FindAllStringSubmatch(body, -1) {
			last = found[1]
		}
		return last
	}
}

// TestFinishes: a harness is told in its own dialect how a turn ended, whole and as a stream. A
// turn that was cut has no call, and what nobody knows is not the model's end.
func TestFinishes(t *testing.T) {
	t.Parallel()
	var says said
	b := newBackend(t, func(int, ask) said { return says })
	p := newPlane(t, b.url, nil)
	call := [][2]string{{"look", "{}"}}
	for _, c := range []struct {
		word                      any
		calls                     [][2]string
		called                    bool
		chat, messages, responses string
	}{
		{"stop", nil, false, "stop", "end_turn", "completed"},
		{"EOS_TOKEN", nil, false, "stop", "end_turn", "completed"},
		{"stop", call, true, "tool_calls", "tool_use", "completed"},
		{"tool_calls", call, true, "tool_calls", "tool_use", "completed"},
		{"tool_calls", nil, false, "tool_calls", "tool_use", "completed"},
		{"length", call, false, "length", "max_tokens", "incomplete max_output_tokens"},
		{"MAX_TOKENS", call, false, "length", "max_tokens", "incomplete max_output_tokens"},
		{"model_length", nil, false, "length", "max_tokens", "incomplete max_output_tokens"},
		{"repetition", call, false, "length", "max_tokens", "incomplete max_output_tokens"},
		{"content_filter", call, false, "content_filter", "refusal", "incomplete content_filter"},
		{"SAFETY", nil, false, "content_filter", "refusal", "incomplete content_filter"},
		{nil, call, false, "unknown", "unknown", "incomplete unknown"},
		{"a new word", call, false, "unknown", "unknown", "incomplete unknown"},
	} {
		m := p.start(nil)
		says = said{content: "½", calls: c.calls, beside: func(_, choice map[string]any, _,
			_ []int32) {
			choice["finish_reason"] = c.word
		}}
		for path, want := range map[string]string{"/chat/completions": c.chat, "/messages": c.messages,
			"/responses": c.responses} {
			for _, stream := range []bool{false, true} {
				conversation := `"messages":[{"role":"user","content":"a"}],"max_tokens":99,"tools":[{"type":"function","function":{"name":"look"}}]`
				switch path {
				case "/messages":
					conversation = `"messages":[{"role":"user","content":"a"}],"max_tokens":99,"tools":[{"name":"look"}]`
				case "/responses":
					conversation = `"input":"a","tools":[{"type":"function","name":"look"}]`
				}
				got := string(p.post("/rollouts/"+m.ID+"/v1"+path,
					fmt.Sprintf(`{"model":"any","stream":%t,%s}`, stream, conversation), http.StatusOK, nil).body)
				if finish := saysFinish[path](got); finish != want || strings.Contains(got, `"look"`) != c.called ||
					!strings.Contains(got, "½") {
					t.Errorf("%v, stream %t: %s says %q, want %q, with a call %t: %s", c.word, stream, path,
						finish, want, c.called, got)
				}
			}
		}
	}
	for word, status := range map[string]int{"timeout": http.StatusBadGateway, "cancelled": http.StatusBadGateway} {
		m := p.start(nil)
		says = said{content: "half", reason: word}
		// TestStreamsThatBreakOff has the streams
		p.post(m.chat(), map[string]any{"messages": []message{user("a")}}, status, nil)
		if n := len(p.rollout(m).Turns); n > 0 {
			t.Errorf("%s: an answer that the server gave up is a turn", word)
		}
	}
}
