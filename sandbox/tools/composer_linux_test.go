package tools_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/wording"
)

// step is a call with what it must answer: the whole answer, or with ... at the end its beginning.
type step struct {
	tool, arguments string
	failed          bool
	want            string
}

func play(t *testing.T, s *tools.Set, sb *sandbox.Sandbox, state *toolset.State, steps []step) {
	t.Helper()
	for _, step := range steps {
		r := callWith(t, s, sb, state, step.tool, step.arguments)
		prefix, cut := strings.CutSuffix(step.want, "...")
		if r.Error != step.failed || !cut && r.Content != step.want || cut && !strings.HasPrefix(r.Content, prefix) {
			t.Errorf("%s %s: error %v, %q; want %v, %q", step.tool, step.arguments, r.Error,
				r.Content, step.failed, step.want)
		}
	}
}

func shell(command string, want string) step {
	return step{"run_terminal_cmd", fmt.Sprintf(`{"command":%q}`, command), false, want}
}

func TestFindAndDelete(t *testing.T) {
	t.Parallel()
	sb, state := workspace(t), &toolset.State{}
	play(t, composer(t), sb, state, []step{
		shell("touch -d 2001-01-01 main.sh empty; touch -d 2002-01-01 lib/a.py; mkdir -p .github deep/er .git; touch .github/x.yml deep/er/z.py .git/y.yml", "exit code: 0"),
		{"glob_file_search", `{"glob_pattern":"*.py"}`, false, "deep/er/z.py\nlib/a.py\n"},
		// a snapshot has no times
		{"glob_file_search", `{"glob_pattern":"**/*.{py,log}","target_directory":"lib"}`, false,
			"lib/a.py\nlib/b.log\n"},
		{"glob_file_search", `{"glob_pattern":"er/*","target_directory":"/app"}`, false, "deep/er/z.py\n"},
		{"glob_file_search", `{"glob_pattern":"{main.sh,empty}"}`, false, "empty\nmain.sh\n"}, // as old as each other
		{"glob_file_search", `{"glob_pattern":"*.yml"}`, false, "No files found."},
		{"glob_file_search", `{"glob_pattern":".github/*.yml"}`, false, ".github/x.yml\n"},
		{"glob_file_search", `{"glob_pattern":"*.conf","target_directory":"/etc/nowhere"}`, true,
			"error: search /etc/nowhere: no such file or directory"},
		{"glob_file_search", `{"glob_pattern":"*","target_directory":"main.sh"}`, true,
			"error: search main.sh: not a directory"},
		{"glob_file_search", `{"glob_pattern":"[z-a]"}`, true, `error: invalid glob "**/[z-a]"`},
		{"glob_file_search", `{}`, true, "error: glob_pattern is missing"},
		shell("for i in $(seq 600); do : > many$i; done", "exit code: 0"),

		{"delete_file", `{"target_file":"lib/a.py","explanation":"not needed"}`, false, "Deleted lib/a.py."},
		{"delete_file", `{"target_file":"/app/lib/a.py"}`, true,
			"error: delete /app/lib/a.py: no such file or directory"},
		{"delete_file", `{"target_file":"lib"}`, true, "error: delete lib: is a directory"},
		{"delete_file", `{"target_file":"/usr/bin/env"}`, true, "error: delete /usr/bin/env: read-only file system"},
		{"delete_file", `{"target_file":"a\u0000b"}`, true,
			"error: delete a\x00b: not a regular file, or an invalid path"},
		{"delete_file", `{}`, true, "error: target_file is missing"},
		{"list_dir", `{"target_directory":"lib"}`, false, "b.log\n"},
	})
	many := callWith(t, composer(t), sb, state, "glob_file_search", `{"glob_pattern":"many*"}`).Content
	if n := strings.Count(many, "\n"); n != 501 || !strings.HasSuffix(many, "[500 shown; there are more]\n") {
		t.Errorf("%d lines of 600 files, ending %q", n, many[len(many)-60:])
	}
}

// TestShellGoesOn: folder and exported variables are there for the next command, in the next
// turn, and in another sandbox.
func TestShellGoesOn(t *testing.T) {
	t.Parallel()
	s, state := composer(t), &toolset.State{}
	first := workspace(t)
	play(t, s, first, state, []step{
		shell(`export TOKEN="a
b" EMPTY=; local=1; unset MANPAGER; export PATH=/nowhere:$PATH; cd lib`, "exit code: 0"),
		shell(`pwd; echo "$TOKEN|${EMPTY-unset}|${local-unset}|${MANPAGER-unset}|$1|${PATH%%:*}"; cd - ; cd -`,
			"/app/lib\na\nb||unset|unset||/nowhere\n/app\n/app/lib\nexit code: 0"),
		shell("exit 3", "exit code: 3"),
		shell("cd /nowhere", "...")})
	if state.Shell == nil || state.Shell.Dir != "/app/lib" || state.Shell.Env["TOKEN"] != "a\nb" ||
		state.Shell.Env["HOME"] != "" || !slices.Equal(state.Shell.Unset, []string{"MANPAGER"}) {
		t.Errorf("the state is %+v", state.Shell)
	}
	recorded, err := json.Marshal(state.OrNil())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is recorded is all that it takes
		var restored toolset.State
		if err := json.Unmarshal(recorded, &restored); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(state.OrNil(), &restored) {
			t.Errorf("%+v became %+v", state, restored)
		}
		play(t, s, workspace(t), &restored, []step{shell(`pwd; echo "$TOKEN"`, "/app/lib\na\nb\nexit code: 0")})
	}
	play(t, s, first, state, []step{
		shell("(", "bash: eval: line 2: syntax error: unexpected end of file\nexit code: 2"),
		shell("pwd; rm -r /app/lib", "/app/lib\nexit code: 0"),
		shell("pwd", "/app\nthe folder /app/lib of the last command is gone: this one begins in /app\nexit code: 0"),
		shell("cd /tmp; export PATH=/nowhere", "exit code: 0"),
		shell("ls", "..."), // not found, but the shell is still there, and so is what it left
		shell("export PATH=/usr/bin:/bin; pwd", "/tmp\nexit code: 0"),
		shell("ls -A; cd /app; unset TOKEN EMPTY OLDPWD; export MANPAGER=cat PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "exit code: 0"),
	})
	if state.OrNil() != nil {
		t.Errorf("as it began, a shell has the state %+v", state.Shell)
	}
}

// TestShellStateIsBounded: what is too large, or no state at all, leaves the one before.
func TestShellStateIsBounded(t *testing.T) {
	t.Parallel()
	sb, s, state := workspace(t), composer(t), &toolset.State{}
	play(t, s, sb, state, []step{shell("cd lib", "exit code: 0")})
	for _, c := range []step{
		shell("export BIG=$(head -c 20000 /dev/zero | tr '\\0' x); cd /",
			"exit code: 0\n[the shell's folder and variables of 20..."),
		shell("export BIG=$(head -c 100000 /dev/zero | tr '\\0' x); cd /",
			"exit code: 0\n[the shell's folder and variables are too large..."),
		shell("trap 'mkdir /tmp/.rondo-shell' EXIT; cd /", "exit code: 0"),
		shell("rmdir /tmp/.rondo-shell; trap 'printf x > /tmp/.rondo-shell' EXIT; cd /", "exit code: 0"),
		shell("ln -s /dev/zero /tmp/.rondo-shell; trap - EXIT", "exit code: 0"),
		shell("rm -f /tmp/.rondo-shell; trap - EXIT; cd /", "exit code: 0"),
		shell("cd /; kill -9 $$", "exit code: 137"),
		shell("cd /; exec true", "exit code: 0"),
	} {
		play(t, s, sb, state, []step{c})
		if state.Shell == nil || state.Shell.Dir != "/app/lib" || len(state.Shell.Env) > 1 {
			t.Errorf("after %s the state is %+v", c.arguments, state.Shell)
		}
	}
}

// TestBackground: a background command begins where the shell is, goes on while
// others run, and can be read.
func TestBackground(t *testing.T) {
	t.Parallel()
	sb, s, state := workspace(t), composer(t), &toolset.State{}
	play(t, s, sb, state, []step{shell("cd lib; export WORD=seen", "exit code: 0")})
	started := callWith(t, s, sb, state, "run_terminal_cmd",
		`{"command":"pwd; echo $WORD; mkfifo go; read line < go; echo $line; cd /; exec sleep 1000","is_background":true}`)
	_, log, ok := strings.Cut(strings.TrimSuffix(started.Content, "."), "output in ")
	if !ok || started.ExitCode != nil || started.Error {
		t.Fatalf("%+v", started)
	}
	play(t, s, sb, state, []step{
		shell("while ! [ -p go ]; do :; done; echo more > go; while ! grep -q more "+log+"; do :; done",
			"exit code: 0"),
		{"read_file", fmt.Sprintf(`{"target_file":%q}`, log), false, "1|/app/lib\n2|seen\n3|more\n"},
		shell("pwd", "/app/lib\nexit code: 0"),
		shell("ps -eo args | grep -c '[s]leep 1000'", "1\nexit code: 0"),
	})
}

func TestTodos(t *testing.T) {
	t.Parallel()
	todo := func(merge bool, todos string) string { return fmt.Sprintf(`{"merge":%v,"todos":[%s]}`, merge, todos) }
	entry := func(id, content, status string) string {
		return fmt.Sprintf(`{"id":%q,"content":%q,"status":%q}`, id, content, status)
	}
	many := make([]string, 101)
	for i := range many {
		many[i] = entry(fmt.Sprint(i), "x", "pending")
	}
	state := &toolset.State{}
	play(t, composer(t), workspace(t), state, []step{
		{"todo_write", todo(false, entry("1", "look", "in_progress")+","+entry("2", "fix", "pending")), false,
			"1 [in_progress] look\n2 [pending] fix\n"},
		{"todo_write", todo(true, `{"id":"1","status":"completed"},`+entry("3", "test", "in_progress")), false,
			"1 [completed] look\n2 [pending] fix\n3 [in_progress] test\n"},
		{"todo_write", todo(true, `{"id":"2","status":"in_progress"}`), true,
			"error: todos: 2 are in_progress, where one at most may be; the list is as it was"},
		{"todo_write", todo(true, `{"id":"4","status":"pending"}`), true, "error: todos: 4: content of 0 bytes..."},
		{"todo_write", todo(true, entry("2", "fix", "done")), true, `error: todos: 2: status "done"...`},
		{"todo_write", todo(true, entry("", "fix", "pending")), true, "error: todos: an id of 0 bytes..."},
		{"todo_write", todo(false, entry("1", "a", "pending")+","+entry("1", "b", "pending")), true,
			`error: todos: the id "1" stands twice`},
		{"todo_write", todo(false, strings.Join(many, ",")), true,
			"error: 101 todos (limit 100); the list is as it was"},
		{"todo_write", todo(true, `{"id":"3","status":"cancelled"}`), false,
			"1 [completed] look\n2 [pending] fix\n3 [cancelled] test\n"},
		{"todo_write", todo(false, ""), false, "The list is empty."},
	})
	if len(state.Todos) != 0 {
		t.Errorf("%+v", state.Todos)
	}
}

// TestChosenTools: a subset, other names, and tools of the run's own.
func TestChosenTools(t *testing.T) {
	t.Parallel()
	s := set(t, toolset.Tooling{
		Set: toolset.Composer, Only: []string{"run_terminal_cmd", "read_file"},
		Rename: map[string]string{"run_terminal_cmd": "bash"},
		Add: []toolset.Added{
			{Name: "count", Description: "Count.", ReadOnly: true,
				Command: []string{"sh", "-c", "cat; echo; pwd; exit 4"}, Parameters: map[string]any{
					"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer",
						"maximum": 5}},
					"required": []string{"n"}, "additionalProperties": false,
				}},
			{Name: "slow", Description: "Wait.", Command: []string{"sleep", "100"}, Timeout: wording.Duration(200e6)},
			{Name: "gone", Description: "Nothing.", Command: []string{"no-such-program"}},
		},
	})
	var names []string
	for _, d := range s.Definitions() {
		names = append(names, d.Name)
	}
	if want := []string{"read_file", "bash", "count", "slow", "gone"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	play(t, s, workspace(t), &toolset.State{}, []step{
		{"bash", `{"command":"echo here"}`, false, "here\nexit code: 0"},
		{"run_terminal_cmd", `{"command":"echo here"}`, true,
			`error: there is no tool "run_terminal_cmd"; the tools are read_file, bash, count, slow, gone`},
		{"grep", `{"pattern":"x"}`, true, `error: there is no tool "grep"...`},
		{"count", `{"n": 3}`, false, "{\"n\": 3}\n/app\nexit code: 4"},
		{"count", `{"n": 6}`, true, "error: `n` must be at most 5, got 6"},
		{"count", `{"n": 3, "m": 1}`, true, "error: there is no `m`; the arguments are `n`"},
		{"count", `{"n": `, true, "error: the arguments are not JSON: ..."},
		{"count", ``, true, "error: `n` is missing"},
		{"slow", `{}`, false, "timed out: killed after 0..."},
		{"gone", ``, false, "no-such-program: command not found\nexit code: 127"},
	})
}

// TestLongAnswersLoseTheirMiddle: whatever the tool, and the count of bytes is right.
func TestLongAnswersLoseTheirMiddle(t *testing.T) {
	text, dropped := tools.Bounded(strings.Repeat("ü", 100<<10))
	if kept := len(text) - len(fmt.Sprintf("\n[... %d bytes dropped ...]\n", dropped)); dropped != 200<<10-160<<10 ||
		kept != 160<<10 || !strings.HasSuffix(text, "üü") {
		t.Errorf("%d dropped, %d kept", dropped, kept)
	}
	if text, dropped := tools.Bounded("a\xffb"); text != "a\uFFFDb" || dropped != 0 {
		t.Errorf("%q, %d", text, dropped)
	}
}
