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
	if _, err := (Messages{}).Read(
		[]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"Type":"x"},"citations":null}]}]}`)); err != nil {
		t.Errorf("keys that are not read: %v", err)
	}
}
