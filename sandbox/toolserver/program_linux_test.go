package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/wording"
)

// inside makes a sandbox that has this program as /opt/program.
func inside(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return sandboxtest.New(t, sandbox.Spec{Name: "server",
		Mounts: []sandbox.Mount{{Source: program, Target: "/opt/program"}}})
}

// server is this program as a server of some kind.
func server(kind string, timeout time.Duration) toolset.Server {
	return toolset.Server{Name: "s", Command: []string{"env", "RONDO_TEST_SERVER=" + kind, "/opt/program"},
		Timeout: wording.Duration(timeout)}
}

func call(t *testing.T, s *Sessions, at toolset.Server, tool, text string) tools.Served {
	t.Helper()
	arguments, err := json.Marshal(asked{text})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Call(t.Context(), at, tool, arguments)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return answer
}

// TestProgram talks to a server in a sandbox, which goes on from call to call, and is started
// again when it has ended.
func TestProgram(t *testing.T) {
	t.Parallel()
	sb := inside(t)
	s := New(sb, nil)
	defer s.Close()
	at := server("good", time.Minute)
	listed, err := s.List(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	at.Tools = listed
	readOnly := map[string]bool{}
	for _, tool := range at.Tools {
		readOnly[tool.Name] = tool.ReadOnly
	}
	if len(listed) != 8 || !readOnly["echo"] || readOnly["count"] || at.Tools[0].Description == "" ||
		at.Tools[0].Parameters["type"] != "object" {
		t.Errorf("listed %+v", listed)
	}
	for _, c := range []struct {
		tool, text, want string
		failed           bool
	}{
		{"count", "", "1", false},
		{"echo", "héllo\n", "héllo\n", false},
		{"write", "by the server", "written", false},
		{"fail", "luck", "no luck here", true},
		{"picture", "", "before\n[image of 5 bytes, image/png: not shown]\n[a: file:///a]\ninner", false},
		{"count", "", "2", false},
		{"nothing", "", `error: the server s answered: unknown tool "nothing"`, true},
		{"long", "", `error: the server s is of no use: it wrote a line of more than 4 MiB; the next call starts it again`, true},
		{"count", "", "1", false},
		{"die", "", "error: the server s has ended with exit code 7; the next call starts it again", true},
		{"count", "", "1", false},
	} {
		if got := call(t, s, at, c.tool, c.text); got.Content != c.want || got.Failed != c.failed {
			t.Errorf("%s answers %.300q, failed %t; want %q", c.tool, got.Content, got.Failed, c.want)
		}
	}
	if written, err := sb.ReadFile(t.Context(), "by-server.txt", 100); err != nil ||
		string(written) != "by the server" {
		t.Errorf("the server wrote %q, %v", written, err)
	}
	// Other commands come and go beside it.
	if result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil ||
		result.ExitCode != 0 || result.Leftovers != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if got := call(t, s, at, "count", ""); got.Content != "2" {
		t.Errorf("a command has ended the server: %q", got.Content)
	}
	s.Close()
	if result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c",
		"cat /proc/[0-9]*/comm"}}); err != nil || strings.Contains(string(result.Stdout), "program") {
		t.Errorf("closed sessions leave their server: %s %v", result.Stdout, err)
	}
}

// TestChattyProgram: lines of a log, line ends, ids as texts and what
// nobody asked for cost no call.
func TestChattyProgram(t *testing.T) {
	t.Parallel()
	s := New(inside(t), nil)
	defer s.Close()
	at := server("chatty", time.Minute)
	if listed, err := s.List(t.Context(), at); err != nil || len(listed) != 8 {
		t.Fatalf("%v %v", listed, err)
	}
	for _, text := range []string{"one", "{\"jsonrpc\"", "two\r\n"} {
		if got := call(t, s, at, "echo", text); got.Content != text || got.Failed {
			t.Errorf("%q is answered %+v", text, got)
		}
	}
	if got := call(t, s, at, "die",
		""); got.Content != `error: the server s has ended with exit code 7; the last that it said is "called"; the next call starts it again` {
		t.Errorf("%+v", got)
	}
}

// TestMessagesIn: what stands on a line of a server's beside messages.
func TestMessagesIn(t *testing.T) {
	const one, two = `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":2,"jsonrpc":"2.0","result":{}}`
	for line, want := range map[string]string{
		one: one + "\n", "\ufeff" + one + "\r": one + "\n", "ready " + one + " ok": one + "\n", two: two + "\n",
		"[" + one + ", " + two + "]": one + "\n" + two + "\n", one + one: one + "\n" + one + "\n",
		`{"jsonrpc":"2.0","id":"1","result":{}}`:             `{"id":1,"jsonrpc":"2.0","result":{}}` + "\n",
		`{"jsonrpc":"2.0","id":"a","result":{}}`:             `{"jsonrpc":"2.0","id":"a","result":{}}` + "\n",
		`{"jsonrpc":"2.0","id":"1","method":"ping"}`:         `{"jsonrpc":"2.0","id":"1","method":"ping"}` + "\n",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xe9\"}": "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\ufffd\"}\n",
		"ready " + two: two + "\n", `{"level":"info"} ` + one: one + "\n", "\x1b[32m{info}\x1b[0m " + two: two + "\n",
		"Content-Length: 36 " + one + "}": one + "\n",
		`{"sent":` + one + `}`:            "", strings.Repeat("{", maxBegins) + one: "",
		`{"level":"info"}`: "", "[INFO] x": "", "": "", "{": "", `{"jsonrpc":"1.0","id":1}`: "",
	} {
		if got := string(messagesIn([]byte(line))); got != want {
			t.Errorf("%q has %q, want %q", line, got, want)
		}
	}
}

// TestHostilePrograms: each costs a bounded time and memory, and ends in an answer
// that says what was wrong.
func TestHostilePrograms(t *testing.T) {
	t.Parallel()
	sb := inside(t)
	for kind, want := range map[string]string{
		"babbling": "it wrote more than 8 MiB or 2000 messages for one call",
		"giant":    "it wrote a line of more than 4 MiB",
		// the write to it may fail before its end is seen
		"garbage": `; the last that it said is "Listening …"; the next call starts it again`,
		"broken":  `a warning [31mno such file:[0m config.yaml"; the next call starts it again`,
	} {
		t.Run(kind, func(t *testing.T) {
			s := New(sb, nil)
			if got := call(t, s, server(kind, time.Minute), "echo", ""); !got.Failed ||
				!strings.Contains(got.Content, want) {
				t.Errorf("%s: %+v, want %q", kind, got, want)
			}
			s.Close()
		})
	}
	s := New(sb, nil)
	defer s.Close()
	missing := toolset.Server{Name: "s", Command: []string{"no-such-program"}}
	if got := call(t, s, missing, "echo", ""); !got.Failed || !strings.Contains(got.Content, "cannot be started: ") ||
		!strings.Contains(got.Content, "command not found") {
		t.Errorf("%+v", got)
	}
	// One that hangs is ended, and what it blocks is let go, also where it reads
	// nothing of what it is sent.
	slow := server("good", 300*time.Millisecond)
	if got := call(t, s, slow, "hang", ""); got.Content != "error: the server s did not answer within 300ms" {
		t.Errorf("%+v", got)
	}
	stopped := server("good", 3*time.Second)
	call(t, s, stopped, "echo", "")
	if _, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c",
		"kill -STOP $(grep -l program /proc/[0-9]*/comm | cut -d/ -f3)"}}); err != nil {
		t.Fatal(err)
	}
	if got := call(t, s, stopped, "echo", strings.Repeat("much",
		1<<16)); got.Content != "error: the server s did not answer within 3s" {
		t.Errorf("%+v", got)
	}
	if got := call(t, s, server("good", time.Minute), "count", ""); got.Content != "1" {
		t.Errorf("after all this: %+v", got)
	}
	// The end of the sandbox is no doing of the server's, nor is that of whoever asks.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := s.Call(ctx, server("good", time.Minute),
		"hang", json.RawMessage(`{"text":""}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	sb.Close()
	if got, err := s.Call(t.Context(), server("good", time.Minute), "echo", nil); err == nil {
		t.Errorf("without a sandbox: %+v", got)
	}
}

// TestDeadlineIsTheReason: whoever waits can see the deadline before what closes the server has
// run, and it is still the deadline that is told.
func TestDeadlineIsTheReason(t *testing.T) {
	t.Parallel()
	at := server("none", time.Microsecond)
	for range 2000 {
		s := New(nil, nil)
		s.open[at.Name] = &link{under: ended{}}
		err := s.inSession(t.Context(), at, at.Wall(), func(ctx context.Context, _ *mcp.ClientSession) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || err.Error() != "the server s did not answer within 1µs" {
			t.Fatal(err)
		}
	}
}

// ended is what lies under a session whose server has ended.
type ended struct{}

func (ended) renew()            {}
func (ended) close()            {}
func (ended) judge(error) error { return errors.New("has ended") }
