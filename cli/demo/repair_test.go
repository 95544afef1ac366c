package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
)

// told feeds the events of one rollout, and answers what is shown of it.
func told(t *testing.T, r *repairs, rollout string, reward float64, turns ...events.TurnSampled) string {
	t.Helper()
	fact := func(typ events.Type, key string, data any) events.Event {
		e, err := events.New("demo-1", typ, rollout, key, data)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	exit := func(code int) *int { return &code }
	chain := []events.Event{fact(events.RolloutStartedType,
		"0", events.RolloutStarted{Group: "g000001", Task: "clamp"})}
	for i, turn := range turns {
		turn.Turn = i
		tools := events.ToolsCompleted{Turn: i}
		for k, c := range turn.ToolCalls {
			result := events.ToolResult{CallID: c.ID, Name: c.Name}
			if c.Name == "run_terminal_cmd" {
				result.Content, result.ExitCode = "ok - 0 1 9\nnot ok - 7 1 9\n", exit(1)
				if k == 1 {
					result.Content, result.ExitCode = "ok\n", exit(0)
				}
			}
			tools.Results = append(tools.Results, result)
		}
		chain = append(chain, fact(events.TurnSampledType, fmt.Sprint("t", i), turn))
		if tools.Results != nil {
			chain = append(chain, fact(events.ToolsCompletedType, fmt.Sprint("c", i), tools))
		}
	}
	chain = append(chain, fact(events.RolloutScoredType,
		"s", events.RolloutScored{Reward: reward, Components: map[string]float64{"reward": reward, "mended": 5}}))
	var b bytes.Buffer
	for i, e := range chain {
		rows := r.take(e)
		if i < len(chain)-1 && rows != nil {
			t.Errorf("%s is shown before its verdict", rollout)
		}
		(&app.Screen{W: &b}).Print(rows...)
	}
	return b.String()
}

// TestRepairIsShown: the first rollout that mends its task is shown, and no other; changes that
// were taken back are counted, those that stayed are shown as differences; nothing that a policy
// writes reaches the terminal as it is.
func TestRepairIsShown(t *testing.T) {
	edit := func(from, to string) events.ToolCall {
		return events.ToolCall{Name: "search_replace",
			Arguments: fmt.Sprintf(`{"file_path":"a.sh","old_string":%q,"new_string":%q}`, from, to)}
	}
	test := events.ToolCall{Name: "run_terminal_cmd", Arguments: `{"command":"sh test.sh"}`}
	turns := []events.TurnSampled{
		{ToolCalls: []events.ToolCall{{Name: "list_dir", Arguments: `{"target_directory":"."}`},
			{Name: "read_file", Arguments: `{"target_file":"a\u001b[31m.sh"}`}}},
		{ToolCalls: []events.ToolCall{test}},
		{ToolCalls: []events.ToolCall{edit("x", "y"), test, edit("y", "x"), edit("x", "z"), test, edit("z", "x")}},
		{ToolCalls: []events.ToolCall{edit("x", "z"), test}},
		{Content: "Done."},
	}
	var r repairs
	if shown := told(t, &r, "g000001-0", 0.5, turns...); shown != "" {
		t.Errorf("half a repair is shown:\n%s", shown)
	}
	want := `│ a repair: g000001-1 of task clamp, by policy version 0
│ turn 0  lists .
│         reads a�[31m.sh
│ turn 1  $ sh test.sh  ✗ not ok - 7 1 9
│ turn 2  tries 2 changes of a.sh and runs the tests after each
│ turn 3  changes a.sh
│         - x
│         + z
│         $ sh test.sh  ✓
│ turn 4  Done.
│ verifier reward 1, mended 5
`
	if shown := told(t, &r, "g000001-1", 1, turns...); shown != want {
		t.Errorf("shown:\n%s\nwant:\n%s", shown, want)
	}
	if shown := told(t, &r, "g000001-2", 1, turns...); shown != "" || !strings.HasSuffix(r.shown, "-1") {
		t.Errorf("a second repair is shown:\n%s", shown)
	}
}
