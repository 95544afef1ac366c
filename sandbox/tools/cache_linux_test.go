package tools_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// kept is a cache that has everything, and what came of it.
type kept struct {
	mu      sync.Mutex
	answers map[tools.Key]tools.Result
	hits    int
}

func (k *kept) answer(_ context.Context, key tools.Key) (tools.Result, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.answers[key]
	if ok {
		k.hits++
	}
	return r, ok
}

func (k *kept) keep(results []tools.Result) {
	for _, r := range results {
		if r.Key != nil {
			k.answers[*r.Key] = r
		}
	}
}

// player is a rollout of the random ones.
type player struct {
	sb     *sandbox.Sandbox
	state  toolset.State
	before []tools.Call
}

// known is what a tool runner would say of the rollout's workspace.
func (p *player) known(t *testing.T, s *tools.Set, k *kept) *tools.Cache {
	t.Helper()
	changes, err := p.sb.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := &tools.Cache{Effect: s.EffectOf(p.sb.Workdir(), p.before), Closed: !p.state.Background, Answer: k.answer,
		Deterministic: deterministic, Settled: s.Settled(p.sb.Workdir(), deterministic, p.before)}
	if changes != nil {
		sum := sha256.Sum256(changes)
		known.Tree = hex.EncodeToString(sum[:])
	}
	entries, err := sandbox.Contents(sandbox.Bytes(changes))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		known.Closed = known.Closed && !strings.HasPrefix(entry, "link to ")
	}
	return known
}

// randomCall reads or changes one of few places, some of which are none of the workspace.
func randomCall(r *rand.Rand) (name, arguments string) {
	place := []string{"a", "a", "b", "d/a", "/tmp/x", "/app/a", "../tmp/x"}[r.IntN(7)]
	text := fmt.Sprint(r.IntN(3))
	switch r.IntN(20) {
	case 0, 1:
		return "write", fmt.Sprintf(`{"file_path":%q,"contents":"%s\n"}`, place, text)
	case 2:
		return "search_replace", fmt.Sprintf(`{"file_path":%q,"old_string":"1","new_string":%q}`, place, "2")
	case 3:
		return "delete_file", fmt.Sprintf(`{"target_file":%q}`, place)
	case 4:
		command := []string{
			"echo " + text + " > /tmp/x", "ln -sf /tmp/x a", "rm -f a; echo " + text + " > b", "ln -sfn /tmp d",
			"rm -rf d; mkdir d; echo " + text + " > d/a", "mkfifo p", "rm -f p a b", "chmod 0 b", "ln -f /tmp/x a",
		}[r.IntN(9)]
		return "run_terminal_cmd", fmt.Sprintf(`{"command":%q}`, command)
	case 5:
		return "todo_write", fmt.Sprintf(`{"merge":false,"todos":[{"id":"1","content":%q,"status":"pending"}]}`, text)
	case 6, 7, 8:
		return "list_dir", fmt.Sprintf(`{"target_directory":%q}`, []string{".", "d", "/tmp", "/app/d"}[r.IntN(4)])
	case 9, 10:
		return "glob_file_search", `{"glob_pattern":"*"}`
	case 11, 12, 13:
		return "grep", fmt.Sprintf(`{"pattern":"[0-9]","path":%q}`, place)
	case 14:
		return "read_file", fmt.Sprintf(`{"Target_File":%q}`, place) // as Go's decoder takes it, too
	}
	return "read_file", fmt.Sprintf(`{"target_file":%q}`, place)
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	p := &player{sb: sandboxtest.New(t, sandbox.Spec{})}
	if err := p.sb.Unpack(t.Context(), p.sb.Workdir(),
		sandboxtest.Pack(t, map[string]string{"a": "1\n", "b": "2\n", "d/a": "1\n"})); err != nil {
		t.Fatal(err)
	}
	if err := p.sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestKnownAnswersAreTrue: in random rollouts of one snapshot, whatever the cache answers is what
// the call answers where it is run.
func TestKnownAnswersAreTrue(t *testing.T) {
	t.Parallel()
	s, k := composer(t), &kept{answers: map[tools.Key]tools.Result{}}
	for seed := range uint64(16) {
		p, r := newPlayer(t), rand.New(rand.NewPCG(seed, 1))
		for range 10 {
			p.play(t, s, k, randomTurn(s, r))
		}
	}
	t.Logf("%d answers kept, %d hits", len(k.answers), k.hits)
	if k.hits < 10 {
		t.Errorf("%d hits of %d kept answers: this shows little", k.hits, len(k.answers))
	}
}

// TestWhatTreesDoNotTell: two rollouts whose workspaces hold the same, and where a call answers
// differently all the same.
func TestWhatTreesDoNotTell(t *testing.T) {
	t.Parallel()
	s := composer(t)
	run := func(format string) func(n int) tools.Call {
		return func(n int) tools.Call {
			return tools.Call{Name: "run_terminal_cmd",
				Arguments: fmt.Sprintf(`{"command":%q}`, strings.ReplaceAll(format, "#", fmt.Sprint(n)))}
		}
	}
	call := func(name, arguments string) func(int) tools.Call {
		return func(n int) tools.Call {
			return tools.Call{Name: name, Arguments: strings.ReplaceAll(arguments, "#", fmt.Sprint(n))}
		}
	}
	type turn []func(n int) tools.Call
	for name, turns := range map[string][]turn{
		"a link": {{run("echo # > /tmp/x; ln -sf /tmp/x a")},
			{call("read_file", `{"target_file":"a"}`)}},
		"a linked folder": {{run("echo # > /tmp/x; ln -s /tmp l")},
			{call("grep", `{"pattern":".","path":"l"}`)}, {call("read_file", `{"target_file":"l/x"}`)}},
		"outside": {{run("echo # > /tmp/x")}, {call("read_file", `{"target_file":"/tmp/x"}`)},
			{call("list_dir", `{"target_directory":"/tmp"}`)}},
		"outside, by a file tool": {{call("write", `{"file_path":"/tmp/x","contents":"#"}`)},
			{call("read_file", `{"target_file":"../tmp/x"}`)}},
		"spelled in another way": {{run("echo # > /tmp/x")}, {call("read_file", `{"Target_File":"/tmp/x"}`)}},
		"in the same turn":       {{run("echo # > a"), call("read_file", `{"target_file":"a"}`)}},
		"written in the same turn": {{call("write", `{"file_path":"a","contents":"#"}`),
			call("read_file", `{"target_file":"a"}`)}},
		"a pipe": {{run("mkfifo p#")}, {call("list_dir", `{"target_directory":"."}`)}},
		"times": {{run("touch -d 200#-01-01 a; touch -d 2002-06-01 b")},
			{call("glob_file_search", `{"glob_pattern":"*"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kept{answers: map[tools.Key]tools.Result{}}
			var answers []string
			for n := 1; n <= 3; n += 2 {
				p := newPlayer(t)
				last := ""
				for _, turn := range turns {
					var calls []tools.Call
					for _, c := range turn {
						calls = append(calls, c(n))
					}
					if s.EffectOf("/app", calls[len(calls)-1:]) != tools.Nothing {
						p.run(t, s, k, calls)
						continue
					}
					last += p.play(t, s, k, calls)
				}
				answers = append(answers, last)
			}
			if answers[0] == answers[1] {
				t.Errorf("%s: both answer %q, so this shows nothing", name, answers[0])
			}
		})
	}
}

// TestSameWorkspaceSameAnswer: what other commands have made the same is known; names, spaces and
// explanations do not matter.
func TestSameWorkspaceSameAnswer(t *testing.T) {
	t.Parallel()
	s, k := composer(t), &kept{answers: map[tools.Key]tools.Result{}}
	read := tools.Call{Name: "read_file", Arguments: `{"target_file":"a"}`}
	for i, first := range []string{"echo 5 > a", "printf '5\\n' > a; echo > /tmp/other", "echo 4 > a; echo 5 > a"} {
		p := newPlayer(t)
		p.run(t, s, k, []tools.Call{{Name: "run_terminal_cmd", Arguments: fmt.Sprintf(`{"command":%q}`, first)}})
		p.play(t, s, k, []tools.Call{read})
		if k.hits != i {
			t.Errorf("after %q there are %d hits, want %d", first, k.hits, i)
		}
	}
	p := newPlayer(t)
	p.play(t, s, k, []tools.Call{{Name: "grep", Arguments: `{"pattern":"1","path":"a"}`}})
	renamed := set(t, toolset.Tooling{Set: toolset.Composer, Rename: map[string]string{"grep": "find"}})
	p.play(t, renamed, k, []tools.Call{{Name: "find", Arguments: " {\"path\" : \"a\",\n\"pattern\":\"1\"}"}})
	if k.hits != 3 {
		t.Errorf("%d hits, want 3", k.hits)
	}
}

// randomTurn ends with a call that reads.
func randomTurn(s *tools.Set, r *rand.Rand) (calls []tools.Call) {
	for {
		name, arguments := randomCall(r)
		calls = append(calls, tools.Call{ID: fmt.Sprint(len(calls)), Name: name, Arguments: arguments})
		if s.EffectOf("/app", calls[len(calls)-1:]) == tools.Nothing && name != "todo_write" {
			return calls
		}
	}
}

func (p *player) run(t *testing.T, s *tools.Set, k *kept, calls []tools.Call) (*tools.Cache, []tools.Result) {
	t.Helper()
	known := p.known(t, s, k)
	results, err := s.Run(t.Context(), tools.Work{Sandbox: p.sb, State: &p.state, Known: known}, calls)
	if err != nil {
		t.Fatal(err)
	}
	k.keep(results)
	p.before = append(p.before, calls...)
	return known, results
}

// play makes a turn's calls, of which the last reads, and compares what that answered with what
// it answers when it is run.
func (p *player) play(t *testing.T, s *tools.Set, k *kept, calls []tools.Call) string {
	t.Helper()
	known, results := p.run(t, s, k, calls)
	last := len(calls) - 1
	run, err := s.Run(t.Context(), tools.Work{Sandbox: p.sb, State: &p.state}, calls[last:])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := results[last], run[0]; got.Content != want.Content || got.Error != want.Error ||
		got.CallID != want.CallID || got.Cache == "" {
		t.Errorf("%+v, with effect %d, closed %v: %s answers\n%s\nwhere it is run\n%s", calls, known.Effect,
			known.Closed, got.Cache, got.Content, want.Content)
	}
	return run[0].Content
}
