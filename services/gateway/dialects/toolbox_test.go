package dialects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// sentTools is what a server is sent, as far as these tests look at it.
type sentTools struct {
	Messages []struct {
		Role, Content string
		CallID        string `json:"tool_call_id"`
		ToolCalls     []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	Tools []struct {
		Type     string
		Function struct {
			Name, Description string
			Parameters        struct{ Required []string }
		}
	}
	Choice json.RawMessage `json:"tool_choice"`
}

func readResponses(t *testing.T, body string) (*Request, sentTools) {
	t.Helper()
	a, err := Responses{}.Read([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	text, err := json.Marshal(a.Forward)
	var sent sentTools
	if err == nil {
		err = json.Unmarshal(text, &sent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, sent
}

const (
	freeTool   = `{"type":"custom","name":"edit","description":"Edit.","format":{"type":"grammar","syntax":"lark","definition":"start: \"x\""}}`
	spaceTool  = `{"type":"namespace","name":"mcp_a","description":"Of A.","tools":[{"type":"function","name":"look","description":"Look.","parameters":{"type":"object"}},{"type":"custom","name":"say"}]}`
	searchTool = `{"type":"tool_search","execution":"client","description":"Find.","parameters":{"type":"object","required":["query"]}}`
	shellTool  = `{"type":"local_shell"}`
)

// TestToolsOfResponses: a tool of each type is a function to the model, its call is an item of the
// tool's own type, whole and in a stream, and that item and its output are the same call of the
// chat in the next request.
func TestToolsOfResponses(t *testing.T) {
	for name, c := range map[string]struct {
		tools, function string
		describes       string
		arguments       string // what the model says
		item            string // the answer's
		events          string // of its arguments in a stream
		output          string // the item that answers it
		back            string // the arguments as they come back; "" for those that the model has said
	}{
		"a function": {`{"type":"function","name":"f"}`, "f", "", `{"a":1}`,
			`{"arguments":"{\"a\":1}","name":"f","type":"function_call"}`, "response.function_call_arguments",
			`{"type":"function_call_output","output":"ok"}`, ""},
		"a custom tool": {freeTool, "edit", "lark", `{"input":"a \"b\""}`,
			`{"input":"a \"b\"","name":"edit","type":"custom_tool_call"}`, "response.custom_tool_call_input",
			`{"type":"custom_tool_call_output","output":"ok"}`, ""},
		"a custom tool that the model calls otherwise": {freeTool, "edit", "", `{"patch":"x"}`,
			`{"input":"{\"patch\":\"x\"}","name":"edit","type":"custom_tool_call"}`, "response.custom_tool_call_input",
			`{"type":"custom_tool_call_output","output":[{"type":"input_text","text":"ok"}]}`,
			`{"input":"{\"patch\":\"x\"}"}`},
		"of a namespace": {spaceTool, "mcp_a__look", "Of A.", `{}`,
			`{"arguments":"{}","name":"look","namespace":"mcp_a","type":"function_call"}`,
			"response.function_call_arguments",
			`{"type":"function_call_output","output":"ok"}`, ""},
		"a custom one of a namespace": {spaceTool, "mcp_a__say", "", `{"input":"x"}`,
			`{"input":"x","name":"say","namespace":"mcp_a","type":"custom_tool_call"}`,
			"response.custom_tool_call_input",
			`{"type":"custom_tool_call_output","output":"ok"}`, ""},
		"a shell": {shellTool, "local_shell", "", `{"command":["ls","-l"],"timeout_ms":5000}`,
			`{"action":{"command":["ls","-l"],"timeout_ms":5000,"type":"exec"},"type":"local_shell_call"}`, "",
			`{"type":"local_shell_call_output","output":"ok"}`, ""},
		"a shell that the model calls otherwise": {shellTool, "local_shell", "", `{"command":"ls"}`,
			`{"arguments":"{\"command\":\"ls\"}","name":"local_shell","type":"function_call"}`,
			"response.function_call_arguments", `{"type":"function_call_output","output":"ok"}`, ""},
		"a field that a shell lacks": {shellTool, "local_shell", "", `{"command":["ls"],"workdir":"/"}`,
			`{"arguments":"{\"command\":[\"ls\"],\"workdir\":\"/\"}","name":"local_shell","type":"function_call"}`,
			"response.function_call_arguments", `{"type":"function_call_output","output":"ok"}`, ""},
		"a search": {searchTool, "tool_search", "Find.", `{"query":"mail"}`,
			`{"arguments":{"query":"mail"},"execution":"client","type":"tool_search_call"}`, "",
			`{"type":"tool_search_output","execution":"client","tools":[]}`, ""},
		"an unknown name": {shellTool, "nobody", "-", `{"a":1}`,
			`{"arguments":"{\"a\":1}","name":"nobody","type":"function_call"}`, "response.function_call_arguments",
			`{"type":"function_call_output","output":"ok"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, sent := readResponses(t, `{"input":"q","tools":[`+c.tools+`]}`)
			i := slices.IndexFunc(sent.Tools, func(tool struct {
				Type     string
				Function struct {
					Name, Description string
					Parameters        struct{ Required []string }
				}
			}) bool {
				return tool.Type == "function" && tool.Function.Name == c.function &&
					strings.Contains(tool.Function.Description, c.describes)
			})
			if i < 0 && c.describes != "-" || a.Withheld != nil {
				t.Fatalf("the model is offered %+v without %v", sent.Tools, a.Withheld)
			}
			n := &Answer{ID: "r.x-0", Created: time.Now(),
				Turn: events.TurnSampled{FinishReason: events.FinishToolCalls,
					ToolCalls: []events.ToolCall{{ID: "c1", Name: c.function, Arguments: c.arguments}}}}
			item := asObject(t, Responses{}.Whole(a, n).(responsesAnswer).Output[0])
			for _, field := range []string{"call_id", "id", "status"} {
				if item[field] == nil {
					t.Errorf("the item has no %s: %v", field, item)
				}
			}
			answered := asText(t, item, "call_id", "id", "status")
			if answered != c.item {
				t.Errorf("answered by %s, want %s", answered, c.item)
			}
			checkStream(t, a, n, item, c.events)
			output := asObject(t, json.RawMessage(c.output))
			output["call_id"] = "c1"
			_, sent = readResponses(t, `{"input":[{"role":"user","content":"q"},`+asText(t, item)+`,`+asText(t, output)+
				`],"tools":[`+c.tools+`]}`)
			if len(sent.Messages) != 3 || sent.Messages[2].CallID != "c1" || sent.Messages[2].Content == "" {
				t.Fatalf("the next request has %+v", sent.Messages)
			}
			back := c.back
			if back == "" {
				back = c.arguments
			}
			if calls := sent.Messages[1].ToolCalls; len(calls) != 1 || calls[0].ID != "c1" ||
				calls[0].Function.Name != c.function || calls[0].Function.Arguments != back {
				t.Errorf("the call comes back as %+v", calls)
			}
		})
	}
}

func asObject(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	var object map[string]any
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// asText is an object with its fields in order, without some.
func asText(t *testing.T, object map[string]any, without ...string) string {
	t.Helper()
	kept := map[string]any{}
	for field, value := range object {
		if !slices.Contains(without, field) {
			kept[field] = value
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkStream holds the events of an answer with one call to the item that it has as a whole.
func checkStream(t *testing.T, a *Request, n *Answer, item map[string]any, kind string) {
	t.Helper()
	var names []string
	delta := ""
	for _, p := range piecesOf(Responses{}, a, n) {
		data := asObject(t, p.Data)
		switch {
		case strings.HasSuffix(p.Name, ".delta"):
			delta += data["delta"].(string)
			continue
		case p.Name == "response.output_item.done":
			if got := asText(t, data["item"].(map[string]any)); got != asText(t, item) {
				t.Errorf("the stream has %s, the whole answer %s", got, asText(t, item))
			}
		}
		names = append(names, p.Name)
	}
	want := []string{"response.created", "response.in_progress", "response.output_item.added", kind + ".done",
		"response.output_item.done", "response.completed"}
	if kind == "" {
		want = slices.Delete(want, 3, 4)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the stream has %v, want %v", names, want)
	}
	if text, ok := item["input"].(string); ok && text != delta {
		t.Errorf("the stream brings %q, want %q", delta, text)
	}
}

// TestToolsThatNobodyRuns: a web search is withheld and named. Tools that a search of the
// provider's would find are offered at once.
func TestToolsThatNobodyRuns(t *testing.T) {
	a, sent := readResponses(t, `{"input":"q","tools":[{"type":"web_search","external_web_access":false},{"type":"function","name":"f","defer_loading":true},{"type":"tool_search"},{"type":"web_search"},
		{"type":"web_search_preview"}]}`)
	if len(sent.Tools) != 1 || sent.Tools[0].Function.Name != "f" ||
		fmt.Sprint(a.Withheld) != "[web_search web_search_preview]" {
		t.Errorf("offered %+v, withheld %v", sent.Tools, a.Withheld)
	}
}

// TestFoundTools: tools that the client has found are told to the model behind its search, and
// their calls are answered with their namespace.
func TestFoundTools(t *testing.T) {
	a, sent := readResponses(t, `{"tools":[`+searchTool+`],"input":[{"role":"user","content":"q"},{"type":"tool_search_call","call_id":"c1","execution":"client","arguments":{"query":"a"}},
		{"type":"tool_search_output","call_id":"c1","execution":"client","tools":[`+spaceTool+`]}]}`)
	if len(sent.Tools) != 1 || len(sent.Messages) != 3 || !strings.Contains(sent.Messages[2].Content, `"mcp_a__look"`) {
		t.Fatalf("the model is told %+v", sent)
	}
	n := &Answer{Turn: events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c2", Name: "mcp_a__look",
		Arguments: "{}"}}}}
	if item := callItem(a, n, 0); item.Name != "look" || item.Namespace != "mcp_a" {
		t.Errorf("answered by %+v", item)
	}
}

// TestParallelCalls: calls of one turn are one message, of whatever types they are.
func TestParallelCalls(t *testing.T) {
	_, sent := readResponses(t, `{"tools":[`+freeTool+`,`+shellTool+`],"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"custom_tool_call","call_id":"c2","name":"edit","input":"x"},
		{"type":"local_shell_call","call_id":"c3","action":{"type":"exec","command":["ls"],"timeout_ms":null,"working_directory":null,"env":null,"user":null}},
		{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"custom_tool_call_output","call_id":"c2","output":"2"},{"type":"local_shell_call_output","id":"c3","output":"3"}]}`)
	if len(sent.Messages) != 5 || len(sent.Messages[1].ToolCalls) != 3 ||
		sent.Messages[1].ToolCalls[2].Function.Arguments != `{"command":["ls"]}` || sent.Messages[4].CallID != "c3" {
		t.Errorf("the model is told %+v", sent.Messages)
	}
}

// TestDevelopers: words of the developer are the system's, on the log as for the server, since
// many chat templates have no such role; those of responses are one message at the beginning,
// where many templates take no more.
func TestDevelopers(t *testing.T) {
	said := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	talk := said("developer", "A") + "," + said("developer", "B") + "," + said("user", "q") +
		"," + said("developer", "C")
	for name, c := range map[string]struct {
		Dialect
		body string
		want []string
	}{
		"chat":         {Chat{}, `{"messages":[` + talk + `]}`, []string{"A", "B", "q", "C"}},
		"responses":    {Responses{}, `{"input":[` + talk + `]}`, []string{"A\n\nB", "q", "C"}},
		"instructions": {Responses{}, `{"instructions":"I","input":[` + talk + `]}`, []string{"I\n\nA\n\nB", "q", "C"}},
	} {
		a, err := c.Read([]byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var sent []struct{ Role, Content string }
		if err := json.Unmarshal(a.Forward["messages"], &sent); err != nil || len(sent) != len(a.Conversation) ||
			len(sent) != len(c.want) {
			t.Errorf("%s: %s, %v", name, a.Forward["messages"], err)
			continue
		}
		for i, m := range sent {
			role := "system"
			if c.want[i] == "q" {
				role = "user"
			}
			if said := a.Conversation[i]; m.Role != role || m.Content != c.want[i] || said.Role != role ||
				said.Content != c.want[i] {
				t.Errorf("%s: message %d is sent as %+v, recorded as %+v, want %q of role %s", name, i,
					m, said, c.want[i], role)
			}
		}
	}
}

// TestUnknownTypes: types of tools, items, parts and choices that a chat cannot carry are refused
// by name, in each dialect.
func TestUnknownTypes(t *testing.T) {
	chat := func(message string) string { return `{"messages":[{"role":"user","content":"q"},` + message + `]}` }
	said := func(blocks string) string {
		return `{"max_tokens":1,"messages":[{"role":"user","content":` + blocks + `}]}`
	}
	responses := func(more string) string { return `{"input":"q",` + more + `}` }
	input := func(items string) string { return `{"input":[{"role":"user","content":"q"},` + items + `]}` }
	contents := func(more string) string { return `{"contents":[{"parts":[{"text":"q"}]},` + more + `]}` }
	asks := func(more string) string { return `{"contents":[{"parts":[{"text":"q"}]}],` + more + `}` }
	for _, c := range []struct {
		Dialect
		body, want string // "" for one that is read
	}{
		{Chat{}, chat(`{"role":"user","content":[{"type":"hologram"}]}`),
			`messages[1]: content[0]: a part of type "hologram"`},
		{Chat{}, chat(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}`),
			"messages[1]: content[0]: a data URL"},
		{Chat{}, chat(`{"role":"user","content":"a"}],"tools":[{"type":"custom","custom":{"name":"x"}}`),
			`tools[0]: type "custom"`},
		{Chat{}, chat(`{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"x"}}]}`),
			`tool_calls[0]: type "custom"`},
		{Messages{}, said(`[{"type":"hologram"}]`), `"hologram"`},
		{Messages{}, said(`[{"type":"image"}]`), `content[0]: source: type ""`},
		{Messages{}, said(`[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image"}]}]`),
			`content[0]: content[0]: source`},
		{Messages{}, `{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}]}`,
			`"redacted_thinking"`},
		{Messages{}, `{"max_tokens":1,"system":[{"type":"image"}],"messages":[{"role":"user","content":"a"}]}`,
			`"image"`},
		{Messages{}, `{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]}`, ""},
		{Messages{}, `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"tools":[{"type":"bash_20250124","name":"bash"}]}`,
			`tools[0]: type "bash_20250124"`},
		{Responses{}, responses(`"tools":[{"type":"hologram"}]`), `tools[0]: type "hologram"`},
		{Responses{}, responses(`"tools":[{"type":"code_interpreter"}]`), `"code_interpreter"`},
		{Responses{}, responses(`"tools":[{"type":"tool_search","execution":"elsewhere"}]`), `"tool_search"`},
		{Responses{}, responses(`"tools":[{"type":"namespace","name":"a","tools":[{"type":"file_search"}]}]`),
			`tools[0]: tools[0]: type "file_search"`},
		{Responses{}, responses(`"tools":[{"type":"namespace","name":"a","tools":[{"type":"namespace","name":"b"}]}]`),
			`"namespace"`},
		{Responses{}, responses(`"tools":[{"type":"custom","name":"a","format":{"type":"xml"}}]`),
			`format: type "xml"`},
		{Responses{}, responses(`"tools":[{"type":"custom"}]`), `without a name`},
		{Responses{}, responses(`"tools":[{"type":"function","name":"a"},{"type":"custom","name":"a"}]`),
			`one name for the model, "a"`},
		{Responses{}, responses(`"tools":[{"type":"function","name":"a"},{"type":"function","name":"a"}]`), ""},
		{Responses{}, responses(`"tool_choice":"sometimes"`), `"sometimes"`},
		{Responses{}, responses(`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`), `"web_search"`},
		{Responses{}, responses(`"tools":[{"type":"custom","name":"a"}],"tool_choice":{"type":"function","name":"a"}`),
			`no tool "a" of type function`},
		{Responses{}, responses(`"tools":[{"type":"custom","name":"a"}],"tool_choice":{"type":"custom","name":"a"}`),
			""},
		{Responses{}, input(`{"type":"web_search_call"}`), `input[1]: type: an item of type "web_search_call"`},
		{Responses{}, input(`{"type":"hologram"}`), `"hologram"`},
		{Responses{}, input(`{"type":"tool_search_call","execution":"server","arguments":{}}`), `execution: "server"`},
		{Responses{}, input(`{"type":"tool_search_output","call_id":"c","tools":[{"type":"hologram"}]}`), `"hologram"`},
		{Responses{}, input(`{"type":"local_shell_call","call_id":"c","action":{"type":"type","text":"x"}}`), "action"},
		{Responses{}, input(`{"type":"reasoning","summary":[],"encrypted_content":"x"}`), "encrypted_content"},
		{Responses{}, input(`{"role":"user","content":[{"type":"input_image","image_url":"data:,"}]}`),
			"input[1]: content[0]: a data URL"},
		{Responses{}, input(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_file"}]}`),
			`"input_file"`},
		{Responses{}, input(`{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`), ""},
		{Gemini{}, contents(`{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}`),
			"contents[1]: parts[0]: inlineData"},
		{Gemini{}, contents(`{"parts":[{"inline_data":{"data":"AA=="}}]}`), "inlineData"},
		{Gemini{}, contents(`{"parts":[{"hologram":1}]}`), "hologram"},
		{Gemini{}, contents(`{"role":"root","parts":[{"text":"a"}]}`), `"root"`},
		{Gemini{}, contents(`{"parts":[{"functionCall":{"name":"f"}}]}`), "the model's part"},
		{Gemini{}, contents(`{"role":"model","parts":[{"functionResponse":{"name":"f"}}]}`), "the user's"},
		{Gemini{}, contents(`{"parts":[{"functionResponse":{"name":"f","response":{}}}]}`), `no call of "f"`},
		{Gemini{}, contents(`{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"parts":[{"functionResponse":{"name":"f","response":{},"parts":[{"text":"a"}]}}]}`),
			"functionResponse: parts"},
		{Gemini{}, contents(`{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"x"}]}`), ""},
		{Gemini{}, asks(`"tools":[{"codeExecution":{"a":1}}]`), "tools[0]: codeExecution"},
		{Gemini{}, asks(`"tools":[{"googleSearch":{}}],"safetySettings":[{"a":1}],"labels":{"a":"b"}`), ""},
		{Gemini{}, asks(`"tools":[{"functionDeclarations":[{"name":"f","behavior":"NON_BLOCKING"}]}]`),
			"functionDeclarations[0]: behavior"},
		{Gemini{}, asks(`"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"}}`), `"VALIDATED"`},
		{Gemini{}, asks(`"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}`),
			`no function "f"`},
		{Gemini{}, asks(`"toolConfig":{"retrievalConfig":{"a":1}}`), "retrievalConfig"},
		{Gemini{}, asks(`"cachedContent":"x"`), "cachedContent"},
		{Gemini{}, asks(`"systemInstruction":{"parts":[{"functionCall":{"name":"f"}}]}`), "systemInstruction"},
		{Gemini{}, asks(`"generationConfig":{"seed":3}`), "generationConfig: seed"},
		{Gemini{}, asks(`"generationConfig":{"candidateCount":2}`), "candidateCount"},
		{Gemini{}, asks(`"generationConfig":{"topK":3.5}`), "topK"},
		{Gemini{}, asks(`"generationConfig":{"maxOutputTokens":0}`), "maxOutputTokens"},
		{Gemini{}, asks(`"generationConfig":{"responseLogprobs":true}`), "responseLogprobs"},
		{Gemini{}, asks(`"generationConfig":{"responseModalities":["IMAGE"]}`), "responseModalities"},
		{Gemini{}, asks(`"generationConfig":{"responseMimeType":"text/x.enum","responseSchema":{"type":"STRING"}}`),
			`"text/x.enum"`},
		{Gemini{}, asks(`"generationConfig":{"topK":1,"top_k":2}`), "topK: it is there twice"},
		{Gemini{}, asks(`"generationConfig":{"thinkingConfig":{"an_effort":"low"}}`), "anEffort"},
		{Gemini{}, asks(`"generationConfig":{"thinkingConfig":{"include_thoughts":true,"thinkingBudget":-1}}`), ""},
	} {
		_, err := c.Read([]byte(c.body))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%T %s: %v, want %q", c.Dialect, c.body, err, c.want)
		}
	}
}
