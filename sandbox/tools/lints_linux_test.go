package tools_test

import (
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Each of these linters says what the real one said of such a file, in its
// version of November 2026.
var linters = map[string]string{
	"bin/shellcheck": `#!/bin/sh
cat <<'E'
[{"file":"./b.sh","line":2,"endLine":2,"column":6,"endColumn":10,"level":"warning","code":2154,"message":"bar is referenced but not assigned.","fix":null},
{"file":"./b.sh","line":4,"endLine":4,"column":14,"endColumn":14,"level":"error","code":1072,"message":"Expected test to end here.","fix":null},
{"file":"./other.sh","line":4,"endLine":4,"column":14,"endColumn":14,"level":"error","code":1072,"message":"Nobody asked.","fix":null}]
E
exit 1
`,
	"bin/ruff": `#!/bin/sh
cat <<'E'
[{"cell":null,"code":"invalid-syntax","end_location":{"column":8,"row":2},"filename":"/app/a.py","fix":null,"location":{"column":7,"row":2},"message":"Expected a parameter","severity":"error","url":null},
{"cell":null,"code":"F401","end_location":{"column":10,"row":1},"filename":"/app/a.py","fix":{"applicability":"safe","edits":[]},"location":{"column":8,"row":1},"message":"unused","severity":"error","url":null}]
E
exit 1
`,
	"bin/tsc": "#!/bin/sh\necho \"web/a.ts(2,5): error TS1005: ')' expected.\"\nexit 2\n",
	"bin/node": `#!/bin/sh
cat >&2 <<'E'
/app/a.js:1
function (
^^^^^^^^

SyntaxError: Function statements require a function name
    at wrapSafe (node:internal/modules/cjs/loader:1464:18)
E
exit 1
`,
}

var faulty = map[string]string{
	"b.sh": "#!/bin/sh\necho $bar\nif [ -z $foo ; then\n", "a.py": "import os\ndef f(:\n",
	"web/a.ts": "const x = 1;\nfoo(", "a.js": "function (\n", "notes.txt": "x",
}

func lints(t *testing.T, sb *sandbox.Sandbox, arguments string) (l tools.Lints) {
	t.Helper()
	r := callWith(t, composer(t), sb, &toolset.State{}, "read_lints", arguments)
	if r.Error {
		t.Fatalf("%s: %s", arguments, r.Content)
	}
	if err := json.Unmarshal([]byte(r.Content), &l); err != nil {
		t.Fatalf("%s: %v", r.Content, err)
	}
	return l
}

func lintSandbox(t *testing.T, spec sandbox.Spec, files ...map[string]string) *sandbox.Sandbox {
	t.Helper()
	all := map[string]string{}
	for _, some := range files {
		for name, text := range some {
			all[name] = text
		}
	}
	sb := sandboxtest.New(t, spec)
	if err := sb.Unpack(t.Context(), sb.Workdir(), sandboxtest.Pack(t, all)); err != nil {
		t.Fatal(err)
	}
	return sb
}

// TestReadLints: what each linter says comes out in one form; of files that nobody
// asked for nothing is said.
func TestReadLints(t *testing.T) {
	t.Parallel()
	sb := lintSandbox(t, sandbox.Spec{Env: map[string]string{"PATH": "/app/bin:/usr/bin:/bin"}}, linters, faulty)
	r := callWith(t, composer(t), sb, &toolset.State{}, "read_lints", `{"paths":["b.sh"]}`)
	const want = `{"linterErrorsByFile":[{"relativeWorkspacePath":"b.sh","errors":[` +
		`{"message":"SC2154: bar is referenced but not assigned.","range":{"startPosition":{"line":2,"column":6},"endPosition":{"line":2,"column":10}},"severity":"DIAGNOSTIC_SEVERITY_WARNING"},` +
		`{"message":"SC1072: Expected test to end here.","range":{"startPosition":{"line":4,"column":14},"endPosition":{"line":4,"column":14}},"severity":"DIAGNOSTIC_SEVERITY_ERROR"}]}]}`
	if r.Content != want {
		t.Errorf("%s\nwant\n%s", r.Content, want)
	}
	for arguments, want := range map[string]string{
		`{"paths":["a.py"]}`:      "a.py 1:8 WARNING F401: unused, a.py 2:7 ERROR invalid-syntax: Expected a parameter",
		`{"paths":["web"]}`:       "web/a.ts 2:5 ERROR TS1005: ')' expected.",
		`{"paths":["/app/a.js"]}`: "a.js 1:0 ERROR SyntaxError: Function statements require a function name",
		`{"paths":["notes.txt"]}`: "notes.txt: no linter is known for this kind of file",
		`{}`: "a.js 1:0 ERROR SyntaxError: Function statements require a function name, a.py 1:8 WARNING F401: unused, a.py 2:7 ERROR invalid-syntax: Expected a parameter, " +
			"b.sh 2:6 WARNING SC2154: bar is referenced but not assigned., b.sh 4:14 ERROR SC1072: Expected test to end here., web/a.ts 2:5 ERROR TS1005: ')' expected.",
	} {
		t.Run(arguments, func(t *testing.T) {
			if got := flat(lints(t, sb, arguments)); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", arguments, got, want)
			}
		})
	}
	play(t, composer(t), sb, &toolset.State{}, []step{
		{"read_lints", `{"paths":["nowhere"]}`, true, "error: check nowhere: no such file or directory"},
		{"read_lints", `{"paths":["../etc"]}`, true, "error: paths: ..."},
		{"read_lints", `{"paths":["*.go"]}`, true, "error: paths: ..."},
	})
}

// TestMissingLinters: what was not checked is told, and never taken for good.
func TestMissingLinters(t *testing.T) {
	t.Parallel()
	sb := lintSandbox(t, sandbox.Spec{Env: map[string]string{"PATH": "/app/bin"}}, faulty, map[string]string{
		"good.sh": "echo", "a.go": "package a\n", "bin/bash": "#!/bin/bash\nexec /bin/bash \"$@\"\n",
		"bin/shellcheck": "#!/bin/sh\necho damaged >&2; echo '[{'\n",
	})
	for arguments, want := range map[string]string{
		`{"paths":["a.go"]}`:    "a.go: gofmt is not installed here, a.go: go is not installed here",
		`{"paths":["a.py"]}`:    "a.py: ruff is not installed here, and python3 is not installed here",
		`{"paths":["web"]}`:     "web/a.ts: tsc is not installed here",
		`{"paths":["a.js"]}`:    "a.js: node is not installed here",
		`{"paths":["good.sh"]}`: "good.sh: shellcheck: damaged",
	} {
		t.Run(arguments, func(t *testing.T) {
			if got := flat(lints(t, sb, arguments)); got != want {
				t.Errorf("%s: %s, want %s", arguments, got, want)
			}
		})
	}
	if err := sb.Remove(t.Context(), "bin/shellcheck"); err != nil {
		t.Fatal(err)
	}
	const byBash = ": shellcheck is not installed here: only its syntax was checked, by bash"
	if got, want := flat(lints(t, sb, `{"paths":["b.sh","good.sh"]}`)),
		"b.sh 4:0 ERROR syntax error: unexpected end of file, b.sh"+byBash+", good.sh"+byBash; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGoLints runs the real gofmt and go vet.
func TestGoLints(t *testing.T) {
	t.Parallel()
	root := build.Default.GOROOT
	sb := lintSandbox(t, sandbox.Spec{
		Mounts: []sandbox.Mount{{Source: root, Target: root}},
		Env: map[string]string{"PATH": root + "/bin:/usr/bin:/bin", "GOROOT": root, "GOCACHE": "/tmp/go",
			"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "-buildvcs=false"},
	}, map[string]string{
		"go.mod": "module m\n\ngo 1.22\n", "good.go": "package m\n",
		"self/a.go":   "package self\n\nfunc F(x int) int {\n\tx = x\n\treturn  x\n}\n",
		"broken/b.go": "package broken\n\nfunc G() {\n", "undefined/c.go": "package undefined\n\nvar X = y\n",
	})
	if got := flat(lints(t, sb, `{"paths":["good.go"]}`)); got != "" {
		t.Errorf("of a good file: %s", got)
	}
	got := flat(lints(t, sb, `{}`))
	for _, want := range []string{
		"self/a.go 4:2 WARNING self-assignment of x", "self/a.go 5:0 INFORMATION gofmt would",
		"broken/b.go 3:12 ERROR expected '}', found 'EOF', self/", "undefined/c.go 3:9 ERROR undefined: y",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "good.go") {
		t.Error(got)
	}
}

// TestPythonWithoutRuff: where ruff is missing, Python itself says what it does not take.
func TestPythonWithoutRuff(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3"
	if _, err := exec.LookPath(python); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("Python is required by RONDO_REQUIRE_ALL=1: %v", err)
		}
		t.Skip(err)
	}
	sb := lintSandbox(t, sandbox.Spec{Env: map[string]string{"PATH": "/app/bin"}}, faulty,
		map[string]string{"bin/python3": "#!/bin/sh\nexec " + python + " \"$@\"\n", "good.py": "x = 1\n"})
	const byPython = ": ruff is not installed here: only the syntax was checked, by python3"
	got := flat(lints(t, sb, `{"paths":["a.py","good.py"]}`))
	if !strings.HasPrefix(got, "a.py 2:7 ERROR invalid syntax, ") ||
		!strings.HasSuffix(got, "a.py"+byPython+", good.py"+byPython) {
		t.Error(got)
	}
	if entries, _, err := sb.List(t.Context(), "."); err != nil || slices.Contains(entries, "__pycache__/") {
		t.Errorf("%v, %v", entries, err)
	}
}

// flat is an answer on one line.
func flat(l tools.Lints) string {
	var all []string
	for _, f := range l.Files {
		for _, d := range f.Errors {
			p := d.Range.Start
			all = append(all, strings.Join([]string{f.Path, strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column),
				strings.TrimPrefix(d.Severity, "DIAGNOSTIC_SEVERITY_"), d.Message}, " "))
		}
	}
	slices.Sort(all)
	for _, u := range l.NotChecked {
		all = append(all, u.Path+": "+u.Reason)
	}
	return strings.Join(all, ", ")
}
