package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/storage"
)

// looks is a model that looks once, and then is done. It breaks off where it is told to.
func looks(_ int, a ask) said {
	if a.Messages[len(a.Messages)-1]["content"] == "Break off." {
		return said{content: "Half of it.", cut: true}
	}
	if a.Messages[len(a.Messages)-1]["role"] == "tool" {
		return said{content: "Done. 🙂"}
	}
	return said{content: "I look.", thought: "Where is it?", calls: [][2]string{{"look", "{}"}}}
}

// missing skips a test, or fails it where everything is to be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// clientSays runs a program, and decodes what it prints.
func clientSays(t *testing.T, into any, command ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%v: %v\n%s", command, err, failed.Stderr)
	}
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("%v printed %s: %v", command, out, err)
	}
}

// checkClient compares what a client was told, and looks at what was recorded.
func checkClient(t *testing.T, p *plane, m member, told, want []string) {
	t.Helper()
	if !slices.Equal(told, want) {
		t.Errorf("%s was told %q, want %q", m.Group, told, want)
	}
	p.finish(m, 1)
	tr := p.trajectory(m)
	if samples := tr.Samples(); tr.TextOnly || len(samples) != 1 || len(samples[0].Turns) != 2 ||
		tr.Messages[len(tr.Messages)-2].Content != "all is well" {
		t.Errorf("%s: the trajectory is %+v", m.Group, tr)
	}
}

// pythonWithClients is a Python that has the official clients.
func pythonWithClients(t *testing.T) string {
	t.Helper()
	python := os.Getenv("RONDO_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import openai, anthropic, google.genai").CombinedOutput(); err != nil {
		missing(t, python+" lacks the modules of tests/gateway/requirements.txt (or set RONDO_PYTHON): "+string(out))
	}
	return python
}

func clientPlane(t *testing.T, change func(*runfile.RunConfig)) *plane {
	t.Helper()
	b := newBackend(t, looks)
	p := newPlane(t, b.url, change)
	p.url = p.serve(func(o *gateway.Options) { o.Tenants = []gateway.Tenant{gateway.WithKey("a", "the-key")} })
	p.key = "the-key"
	return p
}

// TestPythonClients: OpenAI's, Anthropic's and Google's own clients work with the gateway, in each
// dialect, whole and as a stream. An answer whose server breaks off is an error to them.
func TestPythonClients(t *testing.T) {
	t.Parallel()
	python := pythonWithClients(t)
	p := clientPlane(t, nil)
	ends := map[string][2]string{"chat": {"tool_calls", "stop"}, "responses": {"completed", "completed"},
		"messages": {"tool_use", "end_turn"}, "gemini": {"STOP", "STOP"}}
	members, told := map[string]member{}, map[string][]string{}
	command := []string{python, "testdata/clients.py", p.key}
	for dialect := range ends {
		for _, how := range []string{"", "-stream"} {
			m := p.start(map[string]any{"group": strings.ReplaceAll(dialect+how, "-", "_")})
			members[dialect+how] = m
			command = append(command, dialect+how+"="+m.BaseURL)
		}
	}
	clientSays(t, &told, command...)
	for dialect, m := range members {
		name, _, _ := strings.Cut(dialect, "-")
		checkClient(t, p, m, told[dialect], []string{"look", ends[name][0], "Done. 🙂",
			ends[name][1], "broken", "refused"})
	}
}

// TestPythonClientsShowImages: an image that the official clients send in each dialect is
// recorded as the same one.
func TestPythonClientsShowImages(t *testing.T) {
	t.Parallel()
	python := pythonWithClients(t)
	p := clientPlane(t, func(c *runfile.RunConfig) { c.Vision = true })
	file := filepath.Join(t.TempDir(), "red.png")
	if err := os.WriteFile(file, decoded(t, redPNG), 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{python, "testdata/images.py", p.key, file}
	members := map[string]member{}
	for _, dialect := range []string{"chat", "responses", "messages", "gemini"} {
		members[dialect] = p.start(map[string]any{"group": dialect})
		command = append(command, dialect+"="+members[dialect].BaseURL)
	}
	var told map[string]string
	clientSays(t, &told, command...)
	for dialect, m := range members {
		said := p.rollout(m).Turns[0].Prompt[0]
		if told[dialect] != "I look." || len(said.Images) != 1 ||
			said.Images[0].SHA256 != storage.Digest(decoded(t, redPNG)) ||
			said.Content != "What is it?"+said.Images[0].Name() {
			t.Errorf("%s: told %q, recorded %+v", dialect, told[dialect], said)
		}
	}
}

// TestNodeClient: OpenAI's client for Node works with the gateway.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("node", "-e", "require('openai')").CombinedOutput(); err != nil {
		missing(t, "node lacks openai (npm install --prefix DIR the packages of tests/gateway/package.json, and set NODE_PATH=DIR/node_modules): "+
			err.Error()+"\n"+string(out))
	}
	p := clientPlane(t, nil)
	m := p.start(nil)
	var told []string
	clientSays(t, &told, "node", "testdata/client.cjs", p.key, m.BaseURL)
	checkClient(t, p, m, told, []string{"look", "tool_calls", "Done. 🙂", "stop", "broken", "refused"})
}

// TestOtherDialects reads what a client of each sends, and answers errors as it knows them.
func TestOtherDialects(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	for path, c := range map[string]struct{ body, conversation string }{
		"/messages": {`{"model":"any","max_tokens":9,"system":[{"type":"text","text":"s"}],"tool_choice":{"type":"tool","name":"f"},"stop_sequences":["x"],
			"tools":[{"name":"f","description":"d"}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},
			{"type":"text","text":"b"},{"type":"tool_use","id":"c1","name":"f","input":{"x":1}}]},
			{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"r"}]}]}]}`,
			`system:s user:a assistant:b+f{"x":1} tool:r user:and`},
		"/responses": {`{"model":"any","max_output_tokens":9,"instructions":"s","tool_choice":{"type":"function","name":"f"},"tools":[{"type":"function","name":"f"}],
			"text":{"format":{"type":"json_schema","name":"n","schema":{}}},"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},
			{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c1","output":"r"},{"role":"user","content":"and"}]}`,
			`system:s user:a assistant:b+f{"x":1} tool:r user:and`},
		"/models/any:generateContent": {`{"generation_config":{"maxOutputTokens":9,"topK":3.0,"stopSequences":["x"]},"systemInstruction":{"parts":[{"text":"s"}]},
			"tools":[{"function_declarations":[{"name":"f","description":"d"}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}},
			"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"hm","thought":true},{"text":"b"},{"functionCall":{"name":"f","args":{"x":1}}}]},
			{"role":"user","parts":[{"text":"and"},{"functionResponse":{"name":"f","response":{"output":"r"}}}]}]}`,
			`system:s user:a assistant:b+f{"x":1} tool:r user:and`},
	} {
		p.post("/rollouts/"+m.ID+"/v1"+path, c.body, http.StatusOK, nil)
		turns := p.rollout(m).Turns
		var said []string
		for _, x := range turns[len(turns)-1].Prompt {
			text := x.Role + ":" + x.Content
			for _, call := range x.ToolCalls {
				text += "+" + call.Name + call.Arguments
			}
			said = append(said, text)
		}
		if got := strings.Join(said, " "); got != c.conversation {
			t.Errorf("%s: recorded %s, want %s", path, got, c.conversation)
		}
		seen := b.seen()
		if a := seen[len(seen)-1]; a.MaxTokens != 9 || len(a.Tools) != 1 || a.Messages[2]["reasoning_content"] != "hm" {
			t.Errorf("%s: asked %+v", path, a)
		}
	}
	for path, bodies := range map[string]map[string]string{
		"/messages": {
			`{"max_tokens":1}`: "messages", `{"messages":[{"role":"user","content":"a"}]}`: "max_tokens",
			`{"max_tokens":1,"messages":[{"role":"root","content":"a"}]}`:                                                              "root",
			`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document"}]}]}`:                                            "document",
			`{"max_tokens":1,"messages":[{"role":"user","content":7}]}`:                                                                "content",
			`{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`: "web_search",
			`{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"maybe"}}`:                               "maybe",
			`{"max_tokens":1,"messages":[{"role":"user","content":[]}]}`:                                                               "0 messages",
		},
		"/responses": {
			`{}`: "input", `{"input":[]}`: "0 messages",
			`{"input":"a","previous_response_id":"resp_1"}`: "previous_response_id",
			`{"input":"a","background":true}`:               "background",
			`{"input":[{"type":"computer_call"}]}`:          "computer_call", `{"input":[{"role":"root"}]}`: "root",
			`{"input":"a","max_output_tokens":0}`:        "max_output_tokens",
			`{"input":"a","tool_choice":{"type":"mcp"}}`: "tool_choice",
		},
		"/models/any:generateContent": {
			`{}`: "contents", `{"contents":[{"parts":[]}]}`: "0 messages",
			`{"contents":[{"parts":[{"fileData":{"fileUri":"gs://a"}}]}]}`: "fileData",
		},
	} {
		for body, want := range bodies {
			got := p.post("/rollouts/"+m.ID+"/v1"+path, body, http.StatusBadRequest, nil)
			if !strings.Contains(string(got.body), want) || !strings.Contains(string(got.body), `"error":{`) {
				t.Errorf("%s %s: %s", path, body, got.body)
			}
		}
	}
	for method, want := range map[string]string{"any:embedContent": "embedContent",
		"any:streamGenerateContent": "alt=sse", ":generateContent": "MODEL", "any": "MODEL"} {
		got := p.post("/rollouts/"+m.ID+"/v1beta/models/"+method,
			`{"contents":[{"parts":[{"text":"a"}]}]}`, http.StatusNotFound, nil)
		if !strings.Contains(string(got.body), want) || !strings.Contains(string(got.body), `"NOT_FOUND"`) {
			t.Errorf("%s: %s", method, got.body)
		}
	}
}
