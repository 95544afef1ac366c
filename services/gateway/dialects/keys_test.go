package dialects

import (
	"strings"
	"testing"
)

// TestMisspelledKeys: a key that only its case tells from one that is read is refused
// in each dialect, wherever it stands: Go would read it as that one, and the log would
// say what no server reads.
func TestMisspelledKeys(t *testing.T) {
	const messages, responses = `{"model":"m","max_tokens":9,"messages":[%]}`, `{"model":"m","input":[%]}`
	deep := strings.Repeat(`{"type":"namespace","name":"n","tools":[`, 40) + strings.Repeat("]}", 40)
	for body, says := range map[string]string{
		strings.Replace(messages, "%", `{"Role":"user","content":"a"}`,
			1): `messages: [0]: "Role": it is spelled role`,
		strings.Replace(messages, "%", `{"role":"user","content":[{"type":"text","Text":"a"}]}`,
			1): `[0]: "Text": it is spelled text`,
		strings.Replace(messages, "%",
			`{"role":"user","content":[{"type":"image","source":{"type":"base64","Data":""}}]}`,
			1): `source: "Data": it is spelled data`,
		strings.Replace(messages, "%",
			`{"role":"user","content":[{"type":"tool_result","content":[{"Type":"text","text":"a"}]}]}`,
			1): `"Type": it is spelled type`,
		strings.Replace(messages, "%]",
			`{"role":"user","content":"a"}],"system":[{"type":"text","text":"a","TEXT":"b"}]`,
			1): `"TEXT": it is spelled text`,
		strings.Replace(messages, "%]", `{"role":"user","content":"a"}],"tools":[{"name":"f","Input_Schema":{}}]`,
			1): `tools: [0]: "Input_Schema": it is spelled input_schema`,
		strings.Replace(responses, "%", `{"role":"user","Content":"a"}`,
			1): `[0]: "Content": it is spelled content`,
		strings.Replace(responses, "%", `{"role":"assistant","content":[{"type":"output_text","Text":"a"}]}`,
			1): `"Text": it is spelled text`,
		strings.Replace(responses, "%", `{"type":"function_call","call_id":"c","name":"f","Arguments":"{}"}`,
			1): `"Arguments": it is spelled arguments`,
		strings.Replace(responses, "%]", `{"role":"user","content":"a"}],"tools":[{"type":"function","Name":"f"}]`,
			1): `tools: [0]: "Name": it is spelled name`,
		strings.Replace(responses, "%]", `{"role":"user","content":"a"}],"tools":[`+deep+`]`,
			1): `want at most 16 objects and lists`,
	} {
		dialect := Dialect(Messages{})
		if strings.Contains(body, `"input":`) {
			dialect = Responses{}
		}
		if _, err := dialect.Read([]byte(body)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"contents":[{"role":"user","Parts":[{"text":"a"}]}]}`,
		`{"contents":[{"role":"user","parts":[{"Text":"a"}]}]}`} {
		if _, err := (Gemini{Model: "m"}).Read([]byte(body)); err == nil ||
			!strings.Contains(err.Error(), "it is spelled") {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{
		`{"model":"m","max_tokens":9,"messages":[{"Role":"user"}],"messages":[{"role":"user","content":"a"}]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a","content":"b"}]}`,
		`{"model":"m","input":"a","tools":[{"type":"function","name":"f","name":"g"}]}`,
		`{"model":"m","input":"a","text":{"format":null,"format":{"type":"json_object"}}}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"n":2,"n":1}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"stream_options":{"include_usage":true,"include_usage":false}}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"min_tokens":5,"min_tokens":0}`,
		`{"contents":[{"parts":[{"text":"a","text":"b"}]}]}`, `{"contents":[],"contents":[{"parts":[{"text":"a"}]}]}`,
	} {
		if err := readAny(body); err == nil || !strings.Contains(err.Error(), "it is spelled") &&
			!strings.Contains(err.Error(), "more than once") && !strings.Contains(err.Error(), "there twice") {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := (Messages{}).Read(
		[]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"Type":"x"},"citations":null}]}]}`)); err != nil {
		t.Errorf("keys that are not read: %v", err)
	}
}

// TestFreeKeys: objects whose keys are the agent's own have any, in each dialect.
func TestFreeKeys(t *testing.T) {
	const free = `{"Type":"object","type":1,"name":{"Name":1,"name":2},"NAME":[{"Role":1}],"x":1,"x":2}`
	for _, body := range []string{
		`{"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":%}]}],"tools":[{"name":"f","input_schema":%}],"metadata":%}`,
		`{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":%},{"type":"local_shell_call","call_id":"d","action":{"type":"exec","command":["a"],"env":{"Type":"a","TYPE":"b"}}}],"tools":[{"type":"function","name":"f","parameters":%}],"metadata":%,"text":{"format":{"type":"json_schema","schema":%}}}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":%}}]}],"tools":[{"type":"function","function":{"name":"f","parameters":%}}],"metadata":%,"chat_template_kwargs":%}`,
		`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":%}}]}],"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":%}]}],"labels":%}`,
	} {
		if err := readAny(strings.ReplaceAll(body, "%", free)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestPlainRefusals: what is wrong with a value's type is said in the words of JSON.
func TestPlainRefusals(t *testing.T) {
	for body, says := range map[string]string{
		`{"max_tokens":"9","messages":[{"role":"user","content":"a"}]}`:                                  "`max_tokens` must be an integer, got a string",
		`{"max_tokens":9,"messages":[{"role":"user","content":7}]}`:                                      "a list of blocks: the value must be an array, got a",
		`{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","content":[7]}]}]}`: "must be an object",
		`{"max_tokens":9,"messages":[{"role":"user","content":"a"}],"system":{}}`:                        "the value must be an array",
		`{"input":7}`:                                              "a list of items: the value must be an array, got a",
		`{"input":"a","text":{"format":7}}`:                        "text.format: want an object: the value must be an object",
		`{"input":"a","tool_choice":7}`:                            "tool_choice: the value must be an object",
		`{"input":"a","tools":[{"name":7}]}`:                       "must be a string",
		`{"messages":7}`:                                           "`messages` must be an array",
		`{"messages":[{"role":7}]}`:                                "role: the value must be a string",
		`{"messages":[{"role":"user","content":"a"}],"tools":[7]}`: "tools[0]: the value must be an object",
		`{"contents":7}`:                                           "`contents` must be an array",
		`{"contents":[{"parts":7}]}`:                               "`parts` must be an array",
	} {
		if err := readAny(body); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", body, err, says)
		}
	}
}

// readAny reads a request in the dialect that its fields are of.
func readAny(body string) error {
	dialect := Dialect(Chat{})
	switch {
	case strings.Contains(body, `"max_tokens"`):
		dialect = Messages{}
	case strings.Contains(body, `"input":`) && !strings.Contains(body, `"messages"`):
		dialect = Responses{}
	case strings.Contains(body, `"contents"`):
		dialect = Gemini{Model: "m"}
	}
	_, err := dialect.Read([]byte(body))
	return err
}
