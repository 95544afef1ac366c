package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

var files = map[string]string{
	"main.sh":     "#!/bin/sh\necho one\necho two\necho one\n",
	"empty":       "",
	"lib/a.py":    "def first():\n    return 1\n",
	".hidden":     "hidden",
	"binary":      "a\x00b",
	"long.txt":    strings.Repeat("line\n", 5000),
	"no-newline":  "last",
	"lib/b.log":   "log",
	"wide.txt":    strings.Repeat("w", 100_000) + "\nnext\n",
	"unicode.txt": "grüße\n",
}

func workspace(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	sb := sandboxtest.New(t, sandbox.Spec{})
	if err := sb.Unpack(t.Context(), sb.Workdir(), sandboxtest.Pack(t, files)); err != nil {
		t.Fatal(err)
	}
	return sb
}

// found is a search that knows two parts of files and one that is gone.
func found(ctx context.Context, _ *sandbox.Sandbox, query, directory string) (tools.Findings, error) {
	if err := ctx.Err(); err != nil {
		return tools.Findings{}, err
	}
	parts := []tools.Part{
		{Path: "long.txt", FirstLine: 3, LastLine: 100, Symbols: query}, {Path: "gone", FirstLine: 1, LastLine: 2},
		{Path: "lib/b.log", FirstLine: 1, LastLine: 9},
		{Path: "no-newline", FirstLine: 7, LastLine: 9},
	}
	if directory != "" {
		parts = slices.DeleteFunc(parts, func(p tools.Part) bool { return !strings.HasPrefix(p.Path, directory+"/") })
	}
	return tools.Findings{Parts: parts}, nil
}

// set is these tools, with the search.
func set(t testing.TB, tooling toolset.Tooling) *tools.Set {
	t.Helper()
	s, err := tools.NewSet(toolset.Settings{Tools: tooling, Search: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func composer(t testing.TB) *tools.Set { return set(t, toolset.Tooling{Set: toolset.Composer}) }

// call runs one call that must not fail for reasons of the sandbox.
func call(t testing.TB, sb *sandbox.Sandbox, name, arguments string) tools.Result {
	t.Helper()
	return callWith(t, set(t, toolset.Tooling{}), sb, &toolset.State{}, name, arguments)
}

func callWith(t testing.TB, s *tools.Set, sb *sandbox.Sandbox, state *toolset.State, name,
	arguments string) tools.Result {
	t.Helper()
	results, err := s.Run(t.Context(), tools.Work{Sandbox: sb, Search: found, State: state},
		[]tools.Call{{ID: "c1", Name: name, Arguments: arguments}})
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	if r.CallID != "c1" || r.Name != name || r.StartedAt.IsZero() {
		t.Errorf("result is not the call's: %+v", r)
	}
	return r
}

func TestTools(t *testing.T) {
	sb := workspace(t)
	tests := []struct {
		name, tool, arguments string
		failed                bool
		want                  string // the whole answer, or with ... at the end its beginning
	}{
		{"read", "read_file", `{"target_file":"main.sh"}`, false, "1|#!/bin/sh\n2|echo one\n3|echo two\n4|echo one\n"},
		{"read absolute", "read_file", `{"target_file":"/app/no-newline"}`, false, "1|last\n"},
		{"read part", "read_file", `{"target_file":"main.sh","offset":2,"limit":2}`, false, "2|echo one\n3|echo two\n"},
		{"read to the end", "read_file", `{"target_file":"main.sh","offset":4}`, false, "4|echo one\n"},
		{"read past the end", "read_file", `{"target_file":"main.sh","offset":9}`, true,
			"error: offset 9 is past the end: main.sh has 4 lines"},
		{"read empty", "read_file", `{"target_file":"empty"}`, false, "File is empty."},
		{"read missing", "read_file", `{"target_file":"nowhere"}`, true,
			"error: read nowhere: no such file or directory"},
		{"read folder", "read_file", `{"target_file":"lib"}`, true, "error: read lib: is a directory"},
		{"read binary", "read_file", `{"target_file":"binary"}`, true, "error: read binary: it is not a text file"},
		{"read without a name", "read_file", `{}`, true, "error: target_file is missing"},
		{"read unicode", "read_file", `{"target_file":"unicode.txt"}`, false, "1|grüße\n"},
		{"read device", "read_file", `{"target_file":"/dev/zero"}`, true,
			"error: read /dev/zero: not a regular file, or an invalid path"},
		{"read zero byte", "read_file", `{"target_file":"a\u0000b"}`, true,
			"error: read a\x00b: not a regular file, or an invalid path"},

		{"replace", "search_replace", `{"file_path":"lib/a.py","old_string":"return 1","new_string":"return 2"}`, false,
			"Edited lib/a.py: 1 replaced."},
		{"replace seen", "read_file", `{"target_file":"lib/a.py"}`, false, "1|def first():\n2|    return 2\n"},
		{"replace not unique", "search_replace", `{"file_path":"main.sh","old_string":"echo one","new_string":"x"}`,
			true,
			"error: old_string is not unique in main.sh: 2 matches; give more of the lines around it, or set replace_all"},
		{"replace all", "search_replace",
			`{"file_path":"main.sh","old_string":"echo one","new_string":"echo 1","replace_all":true}`, false,
			"Edited main.sh: 2 replaced."},
		{"replace keeps the mode", "run_terminal_cmd", `{"command":"./main.sh"}`, false, "1\ntwo\n1\nexit code: 0"},
		{"replace nothing found", "search_replace", `{"file_path":"main.sh","old_string":"three","new_string":"x"}`,
			true, "error: old_string was not found in main.sh: 0 matches"},
		{"replace unchanged", "search_replace", `{"file_path":"main.sh","old_string":"two","new_string":"two"}`, true,
			"error: old_string and new_string are the same: nothing would change"},
		{"replace empty", "search_replace", `{"file_path":"main.sh","old_string":"","new_string":"two"}`, true,
			"error: old_string is empty; use write to make a file"},
		{"replace missing file", "search_replace", `{"file_path":"nowhere","old_string":"a","new_string":"b"}`, true,
			"error: no such file: nowhere"},
		{"replace without new", "search_replace", `{"file_path":"main.sh","old_string":"a"}`, true,
			"error: file_path, old_string and new_string are needed"},

		{"write", "write", `{"file_path":"new/deep/file","contents":"hello\n"}`, false,
			"Wrote new/deep/file (6 bytes)."},
		{"write seen", "read_file", `{"target_file":"new/deep/file"}`, false, "1|hello\n"},
		{"write empty", "write", `{"file_path":"nothing","contents":""}`, false, "Wrote nothing (0 bytes)."},
		{"write over a folder", "write", `{"file_path":"lib","contents":"x"}`, true,
			"error: write lib: is a directory"},
		{"write below a file", "write", `{"file_path":"empty/x","contents":"x"}`, true,
			"error: write empty/x: not a directory"},
		{"write to the system", "write", `{"file_path":"/usr/x","contents":"x"}`, true,
			"error: write /usr/x: read-only file system"},
		{"write without contents", "write", `{"file_path":"x"}`, true, "error: file_path and contents are needed"},

		{"grep", "grep", `{"pattern":"def \\w+"}`, false, "lib/a.py:1:def first():\n"},
		{"grep in folder", "grep", `{"pattern":"def","path":"lib/"}`, false, "lib/a.py:1:def first():\n"},
		{"grep in file", "grep", `{"pattern":"def","path":"/app/lib/a.py","-A":1}`, false,
			"lib/a.py:1:def first():\nlib/a.py-2-    return 2\n"},
		{"grep outside", "grep", `{"pattern":"^root","path":"/etc/passwd"}`, false,
			"/etc/passwd:1:root:x:0:0:root:/root:/bin/sh\n"},
		{"grep modes", "grep", `{"pattern":"ECHO","-i":true,"output_mode":"count"}`, false, "main.sh:3\n"},
		{"grep nothing", "grep", `{"pattern":"absent"}`, false, "No matches."},
		{"grep bad pattern", "grep", `{"pattern":"(x"}`, true,
			"error: invalid pattern: error parsing regexp: missing closing ): `(?m)(x`"},
		{"grep missing path", "grep", `{"pattern":"x","path":"nowhere"}`, true,
			"error: search nowhere: no such file or directory"},

		{"list", "list_dir", `{"target_directory":"lib"}`, false, "a.py\nb.log\n"},
		{"list workspace", "list_dir", `{"target_directory":"."}`, false,
			"binary\nempty\nlib/\nlong.txt\nmain.sh\nnew/\nno-newline\nnothing\nunicode.txt\nwide.txt\n"},
		{"list without", "list_dir", `{"target_directory":"lib","ignore_globs":["*.log"]}`, false, "a.py\n"},
		{"list empty", "list_dir", `{"target_directory":"/var/tmp"}`, false, "Folder is empty."},
		{"list file", "list_dir", `{"target_directory":"empty"}`, true, "error: list empty: not a directory"},

		{"run", "run_terminal_cmd", `{"command":"echo out; echo err >&2; exit 3"}`, false, "out\nerr\nexit code: 3"},
		{"run without newline", "run_terminal_cmd", `{"command":"printf out; printf err >&2"}`, false,
			"out\nerr\nexit code: 0"},
		{"run quotes", "run_terminal_cmd", `{"command":"echo \"$HOME\" 'a b' | cat","explanation":"why not"}`, false,
			"/root a b\nexit code: 0"},
		{"run bash", "run_terminal_cmd", `{"command":"a=(1 2 3); echo ${a[2]}"}`, false, "3\nexit code: 0"},
		{"run nothing", "run_terminal_cmd", `{"command":" "}`, true, "error: command is missing"},
		{"run not found", "run_terminal_cmd", `{"command":"no-such-program 2>/dev/null"}`, false, "exit code: 127"},
		{"run in background", "run_terminal_cmd", `{"command":"sleep 300","is_background":true}`, false,
			"Started in the background: process ..."},

		{"unknown tool", "delete_everything", `{}`, true,
			`error: there is no tool "delete_everything"; the tools are read_file, search_replace, write, grep, list_dir, run_terminal_cmd, codebase_search`},
		{"malformed", "read_file", `{"target_file":`, true,
			"error: the arguments are not the JSON object that this tool takes: ..."},
		{"not an object", "read_file", `["main.sh"]`, true,
			"error: the arguments must be an object, got [\"main.sh\"]"},
		{"wrong type", "read_file", `{"target_file":{}}`, true, "error: `target_file` must be a string, got an object"},
		{"unknown argument", "read_file", `{"target_file":"main.sh","line":1}`, true,
			"error: there is no `line`; the arguments are `limit`, `offset`, `target_file`"},
		{"texts", "read_file", `"{\"target_file\":\"main.sh\",\"offset\":\"2\",\"limit\":1.0}"`, false, "2|echo 1\n"},
		{"more than one", "read_file", `{"target_file":"main.sh"} {}`, true,
			"error: the arguments go on after the end of the JSON object"},
		{"no arguments", "read_file", ``, true, "error: target_file is missing"},
		{"too many arguments", "write", `{"file_path":"x","contents":"` + strings.Repeat("x", tools.MaxArguments) +
			`"}`, true, "error: arguments of ..."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := call(t, sb, test.tool, test.arguments)
			prefix, cut := strings.CutSuffix(test.want, "...")
			if r.Error != test.failed || !cut && r.Content != test.want ||
				cut && !strings.HasPrefix(r.Content, prefix) {
				t.Errorf("error %v, content %q; want %v, %q", r.Error, r.Content, test.failed, test.want)
			}
		})
	}
}

func TestLongFilesAreCut(t *testing.T) {
	sb := workspace(t)
	r := call(t, sb, "read_file", `{"target_file":"long.txt"}`)
	if !strings.HasSuffix(r.Content, "[lines 1 to 2000 of 5000; read on with offset 2001]\n") {
		t.Errorf("ends %q", r.Content[len(r.Content)-100:])
	}
	if r := call(t, sb, "read_file", `{"target_file":"wide.txt"}`); len(r.Content) > 5000 ||
		!strings.Contains(r.Content, "[...]\n2|next\n") {
		t.Errorf("a wide line gave %d bytes", len(r.Content))
	}
}

func TestTerminalLimits(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{Wall: 200e6, OutputBytes: 1000}})
	r := call(t, sb, "run_terminal_cmd", `{"command":"echo before; sleep 100"}`)
	lines := strings.Split(r.Content, "\n")
	if r.Error || *r.ExitCode < 128 || lines[0] != "before" ||
		!strings.HasPrefix(lines[1], "timed out: killed after ") ||
		lines[2] != fmt.Sprintf("exit code: %d", *r.ExitCode) {
		t.Errorf("timed out: %+v", r)
	}
	r = call(t, sb, "run_terminal_cmd", `{"command":"head -c 5000 /dev/zero | tr '\\0' x"}`)
	if r.DroppedBytes != 4000 || !strings.Contains(r.Content, "[... 4000 bytes dropped ...]") || *r.ExitCode != 0 {
		t.Errorf("much output: %+v", r)
	}
}

func TestResultsStandInOrder(t *testing.T) {
	sb := workspace(t)
	var calls []tools.Call
	add := func(name, arguments string) {
		calls = append(calls, tools.Call{ID: fmt.Sprint(len(calls)), Name: name, Arguments: arguments})
	}
	// What changes the workspace is seen by all that follows, and by nothing that comes before.
	for i := range 5 {
		add("read_file", `{"target_file":"no-newline"}`)
		add("grep", `{"pattern":".","path":"no-newline"}`)
		add("write", fmt.Sprintf(`{"file_path":"no-newline","contents":"%d"}`, i))
	}
	results, err := set(t, toolset.Tooling{}).Run(t.Context(), tools.Work{Sandbox: sb, State: &toolset.State{}}, calls)
	if err != nil {
		t.Fatal(err)
	}
	want := "last"
	for i := range 5 {
		if got := results[3*i].Content; got != "1|"+want+"\n" {
			t.Errorf("call %d read %q, want %q", 3*i, got, want)
		}
		if got := results[3*i+1].Content; got != "no-newline:1:"+want+"\n" {
			t.Errorf("call %d found %q, want %q", 3*i+1, got, want)
		}
		want = fmt.Sprint(i)
	}
	for i, r := range results {
		if r.CallID != fmt.Sprint(i) {
			t.Errorf("result %d is of call %s", i, r.CallID)
		}
	}
}

func TestTooManyCalls(t *testing.T) {
	sb := workspace(t)
	results, err := set(t, toolset.Tooling{}).Run(t.Context(), tools.Work{Sandbox: sb, State: &toolset.State{}},
		slices.Repeat([]tools.Call{{Name: "list_dir", Arguments: `{"target_directory":"."}`}}, tools.MaxCalls+2))
	if err != nil || results[tools.MaxCalls-1].Error || !results[tools.MaxCalls].Error {
		t.Errorf("%v, %+v", err, results[tools.MaxCalls:])
	}
}

func TestInfrastructureIsNoObservation(t *testing.T) {
	sb := workspace(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := composer(t)
	for _, d := range s.Definitions() {
		arguments := map[string]string{
			"read_file": `{"target_file":"a"}`, "search_replace": `{"file_path":"a","old_string":"a","new_string":"b"}`,
			"write": `{"file_path":"a","contents":""}`,
			"grep":  `{"pattern":"a"}`, "list_dir": `{"target_directory":"."}`,
			"run_terminal_cmd": `{"command":"true"}`,
			"codebase_search":  `{"query":"a"}`,
			"delete_file":      `{"target_file":"a"}`, "glob_file_search": `{"glob_pattern":"*"}`,
			"read_lints": `{"paths":["main.sh"]}`,
		}[d.Name]
		if d.Name == "todo_write" {
			continue // it asks nothing of the sandbox
		}
		if _, err := s.Run(ctx, tools.Work{Sandbox: sb, Search: found, State: &toolset.State{}},
			[]tools.Call{{Name: d.Name, Arguments: arguments}}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s when cancelled: %v", d.Name, err)
		}
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := set(t, toolset.Tooling{}).Run(t.Context(), tools.Work{Sandbox: sb, State: &toolset.State{}},
		[]tools.Call{{Name: "read_file", Arguments: `{"target_file":"main.sh"}`}}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("in a closed sandbox: %v", err)
	}
}

// TestDefinitions: schemas are JSON Schemas, and both sets have the tools that
// configurations know, in that order.
func TestDefinitions(t *testing.T) {
	mutating := []string{"search_replace", "write", "run_terminal_cmd", "delete_file", "todo_write"}
	for name, known := range toolset.Sets {
		var names []string
		for _, d := range set(t, toolset.Tooling{Set: name}).Definitions() {
			names = append(names, d.Name)
			document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(d.Parameters)))
			if err != nil {
				t.Fatalf("%s: %v", d.Name, err)
			}
			compiler := jsonschema.NewCompiler()
			if err := compiler.AddResource("schema.json", document); err != nil {
				t.Fatal(err)
			}
			if _, err := compiler.Compile("schema.json"); err != nil {
				t.Errorf("%s: %v", d.Name, err)
			}
			if d.ReadOnly == slices.Contains(mutating, d.Name) || d.Follows != tools.FromSandbox && !d.ReadOnly ||
				d.Limits.AnswerBytes == 0 {
				t.Errorf("%+v", d)
			}
		}
		if !slices.Equal(names, known) {
			t.Errorf("set %s has %v, want %v", name, names, known)
		}
	}
}

// TestForms: what chat endpoints and MCP are told of a tool is what the table says.
func TestForms(t *testing.T) {
	for _, d := range composer(t).Definitions() {
		o, m := d.OpenAI(), d.MCP()
		if o.Type != "function" || o.Function.Name != d.Name || m.Name != d.Name ||
			string(o.Function.Parameters) != string(m.InputSchema) || m.Description != d.Description {
			t.Errorf("%s: %+v, %+v", d.Name, o, m)
		}
		a := m.Annotations
		if a.ReadOnlyHint != d.ReadOnly || a.DestructiveHint != d.Destructive ||
			a.ReadOnlyHint && (a.DestructiveHint || !a.IdempotentHint) || a.OpenWorldHint {
			t.Errorf("%s: %+v", d.Name, a)
		}
	}
}

// TestEveryDeclaredArgumentIsTaken: an argument of the schema that the tool would refuse as
// unknown is a lie to the model.
func TestEveryDeclaredArgumentIsTaken(t *testing.T) {
	sb, all := workspace(t), composer(t)
	for _, d := range all.Definitions() {
		var schema struct {
			Properties map[string]struct{ Type string }
		}
		if err := json.Unmarshal(d.Parameters, &schema); err != nil {
			t.Fatal(err)
		}
		values := map[string]any{}
		for name, property := range schema.Properties {
			values[name] = map[string]any{"string": "content", "integer": 1, "boolean": false,
				"array": []string{}}[property.Type]
		}
		arguments, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		if r := callWith(t, all, sb, &toolset.State{}, d.Name,
			string(arguments)); strings.Contains(r.Content, "unknown field") ||
			strings.Contains(r.Content, "not the JSON object") {
			t.Errorf("%s: %s", d.Name, r.Content)
		}
	}
}
