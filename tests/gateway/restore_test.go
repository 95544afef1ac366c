package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// TestRewrittenCalls: a harness that writes a call's arguments anew stays in its sample, in each
// dialect. One that changes them, or repeats a call of another rollout, begins a new one.
func TestRewrittenCalls(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(_ int, a ask) said {
		if a.Messages[len(a.Messages)-1]["role"] == "tool" {
			return said{content: "Done."}
		}
		return said{content: "I look.", calls: [][2]string{{"look", `{"city": "Paris", "day": 1}`}}}
	})
	p := newPlane(t, b.url, nil)
	other := p.start(nil)
	p.say(other, user("q"))
	for name, c := range map[string]struct {
		path, first, second string
		samples             int
	}{
		"chat completions": {"/chat/completions", `{"messages":[{"role":"user","content":"q"}]}`,
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"I look.","tool_calls":[{"id":"call-1-0","type":"function","function":{"name":"look","arguments":"{\"day\":1,\"city\":\"Paris\"}"}}]},
			{"role":"tool","tool_call_id":"call-1-0","content":"r"}]}`, 1},
		"messages": {"/messages", `{"max_tokens":9,"messages":[{"role":"user","content":"q"}]}`,
			`{"max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"call-1-0","name":"look","input":{"day":1,"city":"Paris"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"call-1-0","content":"r"}]}]}`, 1},
		"responses": {"/responses", `{"input":[{"role":"user","content":"q"}]}`,
			`{"input":[{"role":"user","content":"q"},{"role":"assistant","content":"I look."},{"type":"function_call","call_id":"call-1-0","name":"look","arguments":"{\"day\":1,\"city\":\"Paris\"}"},
			{"type":"function_call_output","call_id":"call-1-0","output":"r"}]}`, 1},
		"another value": {"/responses", `{"input":[{"role":"user","content":"q"}]}`,
			`{"input":[{"role":"user","content":"q"},{"role":"assistant","content":"I look."},{"type":"function_call","call_id":"call-1-0","name":"look","arguments":"{\"day\":2,\"city\":\"Paris\"}"},
			{"type":"function_call_output","call_id":"call-1-0","output":"r"}]}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := p.start(nil)
			p.post("/rollouts/"+m.ID+"/v1"+c.path, c.first, http.StatusOK, nil)
			p.post("/rollouts/"+m.ID+"/v1"+c.path, c.second, http.StatusOK, nil)
			p.finish(m, 1)
			if samples := p.trajectory(m).Samples(); len(samples) != c.samples {
				t.Errorf("%d samples, want %d", len(samples), c.samples)
			}
		})
	}
	t.Run("of another rollout", func(t *testing.T) {
		m := p.start(nil)
		const wrote = `{\"day\":1,\"city\":\"Paris\"}`
		p.post(m.chat(), `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"I look.","tool_calls":[{"id":"call-1-0","type":"function","function":{"name":"look","arguments":"`+wrote+`"}}]},
			{"role":"tool","tool_call_id":"call-1-0","content":"r"}]}`, http.StatusOK, nil)
		seen := b.seen()
		if got := calls(seen[len(seen)-1].Messages[1]); len(got) != 1 || strings.Contains(got[0][1], " ") {
			t.Errorf("the server was asked with %v", got)
		}
	})
	p.prove(0)
}
