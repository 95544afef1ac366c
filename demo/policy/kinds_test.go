package policy

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestRepairEndsWithTheTests: after a change that repairs a part, a program that ends well is no
// reason to stop, as the test that ran before it still fails. A passing test is one.
func TestRepairEndsWithTheTests(t *testing.T) {
	s := newState(toyTools)
	calls := 0
	call := func(tool string, a arguments, result string) {
		t.Helper()
		given, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		id := fmt.Sprint("call", calls)
		s.observe(&Message{Role: "assistant", ToolCalls: []ToolCall{{ID: id,
			Function: Function{Name: tool, Arguments: string(given)}}}})
		s.observe(&Message{Role: "tool", ToolCallID: id, Content: result})
		if s.applied >= 0 && tool == "run_terminal_cmd" {
			s.keep() // as the next turn does
		}
	}
	p := func(text string) *string { return &text }
	call("read_file", arguments{TargetFile: p("price.sh")}, "1|cost=$((5 - 9))\n2|free=$((total > 50))\n")
	call("run_terminal_cmd", arguments{Command: p("timeout 2 sh test.sh")},
		"not ok - express\nnot ok - free\nexit code: 1")
	call("search_replace", arguments{FilePath: p("price.sh"), OldString: p("5 - 9"), NewString: p("5 + 9")},
		"Edited price.sh: 1 replaced.")
	call("run_terminal_cmd", arguments{Command: p("timeout 2 sh test.sh")}, "ok - express\nnot ok - free\nexit code: 1")
	call("run_terminal_cmd", arguments{Command: p("timeout 2 sh price.sh")}, "14\nexit code: 0")
	if s.passing() || !s.offers(kindTry) || s.situation()[0] != "fail" {
		t.Errorf("passing %v, a try is offered %v, the tests %s", s.passing(), s.offers(kindTry), s.situation()[0])
	}
	call("search_replace", arguments{FilePath: p("price.sh"), OldString: p("total > 50"), NewString: p("total >= 50")},
		"Edited price.sh: 1 replaced.")
	call("run_terminal_cmd", arguments{Command: p("timeout 2 sh test.sh")}, "ok - express\nok - free\nexit code: 0")
	if !s.passing() || s.offers(kindTry) || s.situation()[0] != "pass" {
		t.Errorf("passing %v, a try is offered %v, the tests %s", s.passing(), s.offers(kindTry), s.situation()[0])
	}
}
