package index

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

func TestPairsOf(t *testing.T) {
	calls := func(pairs ...string) (list []events.ToolCall) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, events.ToolCall{Name: pairs[i], Arguments: pairs[i+1]})
		}
		return list
	}
	answer := "lib/a.go:3-9 Run, Stop\n3|x := map[string]int{\"b:1-2\": 1}\n4|}\n[2 more lines]\n\nread me.md:1-1\n1|a:1-2\n"
	r := &events.Rollout{
		Run: "r", ID: "g1-0", Started: events.RolloutStarted{Task: "fix"}, Scored: &events.RolloutScored{Reward: 0.5},
		Turns: []events.TurnSampled{
			{Turn: 0, ToolCalls: calls("read_file", `{"target_file":"before.go"}`, "codebase_search",
				`{"query":"where?","target_directories":["lib"]}`, "codebase_search", `{{{`, "codebase_search",
				`{"query":"refused"}`)},
			{Turn: 1, ToolCalls: calls("read_file", `{"target_file":"/app/lib/a.go"}`, "read_file",
				`{"target_file":"gone.go"}`, "read_file", `{"target_file":"./lib/a.go"}`)},
			{Turn: 2, ToolCalls: calls("search_replace", `{"file_path":"lib/a.go"}`, "write",
				`{"file_path":"new.go"}`, "read_file", `7`)},
			{Turn: 3, ToolCalls: calls("write", `{"file_path":"unanswered.go"}`)},
		},
		Tools: events.ToolAnswers{
			{Results: []events.ToolResult{{}, {Content: answer}, {Error: true}, {Error: true}}},
			{Turn: 1, Results: []events.ToolResult{{}, {Error: true}, {}}},
			{Turn: 2, Results: []events.ToolResult{{}, {}, {Error: true}}},
		},
	}
	got, err := json.Marshal(pairsOf(r, "/app"))
	want := `[{"run":"r","rollout":"g1-0","task":"fix","turn":0,"query":"where?","directory":"lib",` +
		`"shown":[{"path":"lib/a.go","first_line":3,"last_line":9},{"path":"read me.md","first_line":1,"last_line":1}],` +
		`"opened":["lib/a.go"],"edited":["lib/a.go","new.go"],"reward":0.5}]`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}
