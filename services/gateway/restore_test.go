package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// TestSameArguments: arguments are the same where their values are.
func TestSameArguments(t *testing.T) {
	deep := strings.Repeat("[", maxLevels+5) + strings.Repeat("]", maxLevels+5)
	large := strings.Repeat("x", maxCompared)
	for name, c := range map[string]struct {
		x, y string
		same bool
	}{
		"spaces": {`{"city": "Paris"}`, `{"city":"Paris"}`, true},
		"order of keys": {`{"a":1,"b":{"c":[1,2],"d":null}}`,
			`{ "b": {"d": null, "c": [1, 2]}, "a": 1 }`, true},
		"escapes":                {`{"a":"\u00e9\/"}`, `{"a":"é/"}`, true},
		"nothing":                {``, `{}`, true},
		"no object, and wrapped": {`ls -l`, `{"malformed_arguments":"ls -l"}`, true},
		"the same text":          {`{"a":"` + large + `"}`, `{"a":"` + large + `"}`, true},
		"another value":          {`{"city":"Paris"}`, `{"city":"paris"}`, false},
		"order of a list":        {`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		"one key more":           {`{"a":1}`, `{"a":1,"b":null}`, false},
		"one key less":           {`{"a":1,"b":2}`, `{"a":1}`, false},
		"1 and 1.0":              {`{"a":1}`, `{"a":1.0}`, true},
		"10 and 1e1":             {`{"a":10}`, `{"a":1E+1}`, true},
		"a tenth":                {`{"a":0.10}`, `{"a":1e-1}`, true},
		"0 and -0.0":             {`{"a":0}`, `{"a":-0.0}`, true},
		"1 and 10":               {`{"a":1}`, `{"a":10}`, false},
		"1 and -1":               {`{"a":1}`, `{"a":-1}`, false},
		"1 and 0.1":              {`{"a":1}`, `{"a":0.1}`, false},
		"a large exponent":       {`{"a":1e9999999999}`, `{"a": 10e9999999998}`, false},
		"a number and a text":    {`{"a":1}`, `{"a":"1"}`, false},
		"a list and null":        {`{"a":[]}`, `{"a":null}`, false},
		"null and an object":     {`{"a":null}`, `{"a":{}}`, false},
		"a rounded number":       {`{"a":12345678901234567890}`, `{"a": 12345678901234567000}`, false},
		"a key twice":            {`{"a":1,"a":2}`, `{"a":2}`, false},
		"half characters":        {`{"a":"\ud800"}`, `{"a":"\udfff"}`, false},
		"half a key":             {`{"\ud800":1}`, `{"\udfff":1}`, false},
		"deep":                   {`{"a":` + deep + `}`, `{"a": ` + deep + `}`, false},
		"large":                  {`{"a":"` + large + `"}`, `{"a": "` + large + `"}`, false},
		"cut":                    {`{"a":1`, `{"a": 1`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sameArguments(inference.Arguments(c.x), inference.Arguments(c.y)); got != c.same {
				t.Errorf("%v, want %v", got, c.same)
			}
			if got := sameArguments(inference.Arguments(c.y), inference.Arguments(c.x)); got != c.same {
				t.Errorf("the other way round: %v, want %v", got, c.same)
			}
		})
	}
}

// TestFilledArguments: a call is the same where a client has added arguments, or left some out,
// that have the default of the tool's schema.
func TestFilledArguments(t *testing.T) {
	own := defaultsOf(json.RawMessage(`[
		{"function":{"name":"f","parameters":{"properties":{"all":{"default":false},"n":{"default":2.50},"o":{"default":{"a":[]}},"x":{}}}}},
		{"function":{"name":"g","parameters":{"properties":{"x":{"type":"string"}}}}}, {"function":{"name":"h","parameters":true}},
		{"function":{"name":"j","parameters":{"properties":{"any":true,"list":[],"none":{"default":null},"own":{"Default":1}}}}},
		{"function":{"name":"k","parameters":{"properties":{"in":{"properties":{"all":{"default":false}}}}}}},
		{"function":{"name":"l","parameters":{"properties":{"all":{"default":false}}}}}, {"function":{"name":"l"}}]`))
	for name, c := range map[string]struct {
		tool, x, y string
		same       bool
	}{
		"the default":         {"f", `{"x":"a"}`, `{"all":false,"x":"a"}`, true},
		"all defaults":        {"f", `{}`, `{"all":false,"n":2.5,"o":{"a":[]}}`, true},
		"others on each side": {"f", `{"all":false}`, `{"n":2.50}`, true},
		"another value":       {"f", `{"x":"a"}`, `{"all":true,"x":"a"}`, false},
		"no default":          {"f", `{}`, `{"x":null}`, false},
		"another argument":    {"f", `{"x":"a"}`, `{"all":false,"x":"b"}`, false},
		"a list":              {"f", `[]`, `{"all":false}`, false},
		"a key twice":         {"f", `{"x":1,"x":2}`, `{"all":false,"x":2}`, false},
		"another tool":        {"g", `{}`, `{"all":false}`, false},
		"no schema":           {"h", `{}`, `{"all":false}`, false},
		"an unknown tool":     {"i", `{}`, `{"all":false}`, false},
		"null":                {"j", `{}`, `{"none":null}`, true},
		"another field":       {"j", `{}`, `{"own":1}`, false},
		"within an argument":  {"k", `{"in":{}}`, `{"in":{"all":false}}`, false},
		"two tools of a name": {"l", `{}`, `{"all":false}`, false},
		"another type":        {"f", `{}`, `{"all":"false"}`, false},
		"null, no default":    {"f", `{}`, `{"all":null}`, false},
	} {
		x, y := events.ToolCall{Name: c.tool, Arguments: c.x}, events.ToolCall{Name: c.tool, Arguments: c.y}
		if own.sameToolCall(x, y) != c.same || own.sameToolCall(y, x) != c.same {
			t.Errorf("%s: the same: %t, the other way round: %t", name, own.sameToolCall(x, y), own.sameToolCall(y, x))
		}
	}
	if defaultsOf(json.RawMessage(`"default"`)) != nil || defaultsOf(nil) != nil {
		t.Error("what is no list of tools has defaults")
	}
	deep := strings.Repeat(`{"a":`, 1<<16) + "0" + strings.Repeat("}", 1<<16)
	for _, value := range []string{deep, strings.Repeat("[", maxLevels+5) + strings.Repeat("]", maxLevels+5),
		`"` + strings.Repeat("x", maxTools) + `"`} {
		own := defaultsOf(json.RawMessage(`[{"function":{"name":"f","parameters":{"properties":{"x":{"default":` +
			value + `}}}}}]`))
		if len(own["f"]) > 0 {
			t.Errorf("a default of %d bytes is read", len(value))
		}
	}
}

// TestFilledTurns: a request goes on with the turn whose call its client has filled in, and has the
// call as the turn has it; of two turns it is the one whose arguments it has.
func TestFilledTurns(t *testing.T) {
	own := []events.TurnSampled{recordedCall(0, "c0", `{"a": "x"}`), recordedCall(0, "c1", `{"a": "x", "all": false}`)}
	own[1].Turn = 1
	for arguments, c := range map[string]struct {
		turns []events.TurnSampled
		after int
	}{
		`{"a":"x","all":false}`: {own[:1], 0},
		`{"all":false,"a":"x"}`: {own, 1},
		`{"a":"x"}`:             {own, 0},
		`{"a":"x","all":true}`:  {own, -1},
	} {
		text, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		read, err := dialects.Chat{}.Read([]byte(`{"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"all":{"default":false}}}}}],
			"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"I look.","tool_calls":[{"id":"","type":"function",
			"function":{"name":"f","arguments":` + string(text) + `}}]},{"role":"tool","content":"r"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		a := &ask{Request: read}
		if err := a.bind(c.turns); err != nil || a.after != c.after {
			t.Errorf("%s goes on with turn %d, want %d: %v", arguments, a.after, c.after, err)
			continue
		}
		if sent := a.Conversation[1].ToolCalls[0].Arguments; c.after >= 0 &&
			sent != own[c.after].ToolCalls[0].Arguments {
			t.Errorf("%s goes to the server as %s", arguments, sent)
		}
	}
}

// recordedCall is a turn that calls a tool behind thoughts, as in a rollout's log.
func recordedCall(n int, id, arguments string) events.TurnSampled {
	turn := events.TurnSampled{
		Turn: n, Content: "I look.", Reasoning: &events.Reasoning{Text: fmt.Sprint("hm ", n),
			Fields: []string{"reasoning"}},
		ToolCalls: []events.ToolCall{{ID: id, Name: "f", Arguments: arguments}},
	}
	if turn.NewSegment = n == 0; n == 0 {
		turn.Prompt = []events.PromptMessage{{Role: "user", Content: "q"}}
		return turn
	}
	before := n - 1
	turn.After, turn.Prompt = &before, []events.PromptMessage{{Role: "tool", ToolCallID: id, Content: "r"}}
	return turn
}

// TestRestore: what a client wrote anew goes to the server as it was recorded, in each dialect, and
// what it changed goes as it is.
func TestRestore(t *testing.T) {
	const wrote, recorded = `{"b":[1,2],"a":"x"}`, `{"a": "x", "b": [1, 2]}`
	chat := func(message string) string {
		return `{"messages":[{"role":"user","content":"q"},` + message +
			`,{"role":"tool","tool_call_id":"c0","content":"r"}]}`
	}
	call := func(id, arguments string) string {
		text, _ := json.Marshal(arguments)
		return `"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"f","arguments":` + string(text) +
			`}}]`
	}
	free := func(input string) string {
		text, _ := json.Marshal(input)
		return `{"input":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"output_text","text":"I look."}]},
			{"type":"custom_tool_call","call_id":"c0","name":"f","input":` + string(text) + `},{"type":"custom_tool_call_output","call_id":"c0","output":"r"}]}`
	}
	own := []events.TurnSampled{recordedCall(0, "c0", recorded)}
	for name, c := range map[string]struct {
		dialect dialects.Dialect
		body    string
		turns   []events.TurnSampled
		message int    // the message that is looked at
		thought string // "" where the client's words stand
		content string
	}{
		"chat completions": {dialects.Chat{}, chat(`{"role":"assistant","content":"I look.",` + call("c0", wrote) +
			`}`), own, 1, "hm 0", `"I look."`},
		"with its reasoning": {dialects.Chat{},
			chat(`{"role":"assistant","content":"I look.","reasoning_content":"hm 0",` + call("c0", wrote) + `}`), own,
			1, "hm 0", `"I look."`},
		"a list of parts": {dialects.Chat{},
			chat(`{"role":"assistant","content":[{"type":"text","text":"I look."}],` + call("c0", wrote) + `}`), own, 1,
			"hm 0", `[{"type":"text","text":"I look."}]`},
		"white space": {dialects.Chat{}, chat(`{"role":"assistant","content":" I look.\n",` + call("c0", wrote) +
			`}`), own, 1, "hm 0", `"I look."`},
		"another value": {dialects.Chat{}, chat(`{"role":"assistant","content":"I look.",` +
			call("c0", `{"a":"y","b":[1,2]}`) + `}`), own, 1, "", `"I look."`},
		"other words": {dialects.Chat{}, chat(`{"role":"assistant","content":"I looked.",` + call("c0", wrote) +
			`}`), own, 1, "", `"I looked."`},
		"other reasoning": {dialects.Chat{}, chat(`{"role":"assistant","content":"I look.","reasoning":"no",` +
			call("c0", wrote) + `}`), own, 1, "", `"I look."`},
		"another tool": {dialects.Chat{}, chat(`{"role":"assistant","content":"I look.",` +
			strings.Replace(call("c0", wrote), `"f"`, `"g"`, 1) + `}`), own, 1, "", `"I look."`},
		"another id": {dialects.Chat{}, strings.Replace(chat(`{"role":"assistant","content":"I look.",`+
			call("c9", wrote)+`}`), `"tool_call_id":"c0"`, `"tool_call_id":"c9"`, 1), own, 1, "hm 0", `"I look."`},
		"no id": {dialects.Chat{}, chat(`{"role":"assistant","content":"I look.",` + call("", wrote) +
			`}`), own, 1, "hm 0", `"I look."`},
		"of another rollout": {dialects.Chat{}, chat(`{"role":"assistant","content":"I look.",` + call("c0", wrote) +
			`}`), nil, 1, "", `"I look."`},
		"a user who repeats": {dialects.Chat{}, chat(`{"role":"user","content":"I look.",` + call("c0", wrote) + `}`),
			own, 1, "", `"I look."`},
		"an id that is twice": {dialects.Chat{}, `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"I look.",` + call("c0", wrote) + `},{"role":"tool","tool_call_id":"c0","content":"r"},
			{"role":"assistant","content":"I look.",` + call("c0", wrote) + `},{"role":"tool","tool_call_id":"c0","content":"r"}]}`, append(own[:1:1], recordedCall(1, "c0", recorded)), 3, "hm 1", `"I look."`},
		"twice, and out of its place": {dialects.Chat{},
			`{"messages":[{"role":"user","content":"another"},{"role":"assistant","content":"I look.",` +
				call("c0", wrote) + `}]}`,
			append(own[:1:1], recordedCall(1, "c0", recorded)), 1, "", `"I look."`},
		"messages": {dialects.Messages{}, `{"max_tokens":1,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"I look."},
			{"type":"tool_use","id":"c0","name":"f","input":` + wrote + `}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c0","content":"r"}]}]}`, own, 1, "hm 0", `"I look."`},
		"responses": {dialects.Responses{}, `{"input":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"output_text","text":"I look."}]},
			{"type":"function_call","call_id":"c0","name":"f","arguments":"{\"b\":[1,2],\"a\":\"x\"}"},{"type":"function_call_output","call_id":"c0","output":"r"}]}`, own, 1, "hm 0", `"I look."`},
		"a custom tool that was called without input": {dialects.Responses{}, free(recorded), own,
			1, "hm 0", `"I look."`},
		"a custom tool with another input": {dialects.Responses{}, free(wrote), own, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			read, err := c.dialect.Read([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			a := &ask{Request: read}
			before := string(a.Forward["messages"])
			if err := a.bind(c.turns); err != nil {
				t.Fatal(err)
			}
			var sent []struct {
				Content   json.RawMessage      `json:"content"`
				Reasoning string               `json:"reasoning"`
				Other     string               `json:"reasoning_content"`
				ToolCalls []inference.ToolCall `json:"tool_calls"`
				Answers   string               `json:"tool_call_id"`
			}
			if err := json.Unmarshal(a.Forward["messages"], &sent); err != nil || len(sent) != len(a.Conversation) {
				t.Fatalf("%s: %v", a.Forward["messages"], err)
			}
			if c.thought == "" {
				if string(a.Forward["messages"]) != before {
					t.Errorf("the client's words became %s", a.Forward["messages"])
				}
				return
			}
			m := sent[c.message]
			if string(m.Content) != c.content || m.Reasoning != c.thought || m.Other != "" || len(m.ToolCalls) != 1 ||
				m.ToolCalls[0].Function.Arguments != recorded {
				t.Errorf("sent %s %+v", m.Content, m)
			}
			if last := sent[len(sent)-1]; c.message == 1 && m.ToolCalls[0].ID != "c0" ||
				last.Answers != "c0" && last.Answers != "" {
				t.Errorf("%q answers %q", last.Answers, m.ToolCalls[0].ID)
			}
			if said := a.Conversation[c.message]; said.Content != "I look." || said.ToolCalls[0].Arguments != recorded {
				t.Errorf("recorded %+v", said)
			}
		})
	}
}
