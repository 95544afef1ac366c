package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// TestToolsOfAgents: tools that are no functions, as Codex offers them, are called and
// answered in one sample. A web search, which nobody here could run, is withheld, and the
// answer and the record say so.
func TestToolsOfAgents(t *testing.T) {
	t.Parallel()
	calls := map[string]string{"edit": `{"input": "*** Begin\n"}`, "mcp_a__look": `{"city": "Paris"}`,
		"local_shell": `{"command": ["ls", "-l"]}`, "tool_search": `{"query": "mail"}`}
	var wanted string
	b := newBackend(t, func(_ int, a ask) said {
		if a.Messages[len(a.Messages)-1]["role"] == "tool" {
			return said{content: "Done."}
		}
		return said{calls: [][2]string{{wanted, calls[wanted]}}}
	})
	p := newPlane(t, b.url, nil)
	const offered = `"tools":[{"type":"function","name":"sh"},{"type":"custom","name":"edit","format":{"type":"text"}},{"type":"web_search"},{"type":"local_shell"},
		{"type":"namespace","name":"mcp_a","description":"A.","tools":[{"type":"function","name":"look"}]},{"type":"tool_search","execution":"client"}]`
	for name, kinds := range map[string][2]string{
		"edit":        {"custom_tool_call", `{"type":"custom_tool_call_output","call_id":%q,"output":"ok"}`},
		"mcp_a__look": {"function_call", `{"type":"function_call_output","call_id":%q,"output":"ok"}`},
		"local_shell": {"local_shell_call", `{"type":"function_call_output","call_id":%q,"output":"ok"}`},
		"tool_search": {"tool_search_call",
			`{"type":"tool_search_output","call_id":%q,"execution":"client","tools":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			wanted = name
			m := p.start(nil)
			path := "/rollouts/" + m.ID + "/v1/responses"
			var first struct{ Output []map[string]any }
			got := p.post(path, `{"input":[{"role":"user","content":"q"}],`+offered+`}`, http.StatusOK, &first)
			if named := got.header.Get("Rondo-Withheld-Tools"); named != "web_search" {
				t.Errorf("the answer names %q as withheld", named)
			}
			call := first.Output[len(first.Output)-1]
			if call["type"] != kinds[0] {
				t.Fatalf("answered by %v", call)
			}
			item, err := json.Marshal(call)
			if err != nil {
				t.Fatal(err)
			}
			p.post(path, `{"input":[{"role":"user","content":"q"},`+string(item)+`,`+
				fmt.Sprintf(kinds[1], call["call_id"])+`],`+offered+`}`, http.StatusOK, nil)
			p.finish(m, 1)
			if samples := p.trajectory(m).Samples(); len(samples) != 1 || len(samples[0].Turns) != 2 {
				t.Errorf("%d samples: %+v", len(samples), samples)
			}
			for _, turn := range p.rollout(m).Turns {
				if fmt.Sprint(turn.Requested["withheld_tools"]) != "[web_search]" || turn.Constrained != nil {
					t.Errorf("the record says %v, constrained by %v", turn.Requested, turn.Constrained)
				}
			}
		})
	}
	p.prove(0)
}
