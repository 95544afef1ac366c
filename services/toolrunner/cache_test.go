package toolrunner

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

func testCache(t *testing.T, store storage.Store, folder string) *cache {
	t.Helper()
	c, err := newCache(store, folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// TestCacheIsBounded: the oldest answers make room, also after a restart, and damage empties it.
func TestCacheIsBounded(t *testing.T) {
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	c := testCache(t, store, folder)
	c.limit = 10_000
	there := func(c *cache) (found []int) {
		for i := range 20 {
			if a, ok := c.get(t.Context(), "r", "grep", fmt.Sprint("key", i)); ok {
				if !strings.HasPrefix(a.Content, fmt.Sprint(i, ":")) {
					t.Errorf("answer %d is %.20q", i, a.Content)
				}
				found = append(found, i)
			}
		}
		return found
	}
	put := func(c *cache, from, to int) {
		for i := from; i < to; i++ {
			c.put(t.Context(), "r", "grep", fmt.Sprint("key", i),
				answer{Content: fmt.Sprint(i, ":", strings.Repeat("x", 1900))})
		}
	}
	put(c, 0, 8)
	put(c, 7, 8) // again: nothing new
	if got := fmt.Sprint(there(c)); got != "[3 4 5 6 7]" {
		t.Errorf("of eight answers these are kept: %s", got)
	}
	c.close()
	c = testCache(t, store, folder)
	c.limit = 10_000
	put(c, 8, 10)
	if got := fmt.Sprint(there(c)); got != "[5 6 7 8 9]" {
		t.Errorf("after a restart: %s", got)
	}
	c.close()
	if got := there(c); got != nil {
		t.Errorf("a closed cache has %v", got)
	}
	entries, err := os.ReadDir(filepath.Join(folder, "tools"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.WriteFile(filepath.Join(folder, "tools", e.Name()), []byte("damaged"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c = testCache(t, store, folder)
	if got := there(c); got != nil {
		t.Errorf("of damaged files: %v", got)
	}
	put(c, 0, 1)
	if got := fmt.Sprint(there(c)); got != "[0]" {
		t.Errorf("after damage: %s", got)
	}
}

// TestCacheIsShared: runners spare each other the searches that took long, and take nothing from
// the store that is no answer.
func TestCacheIsShared(t *testing.T) {
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	one := testCache(t, store, t.TempDir())
	one.put(t.Context(), "r", tools.SearchTool, "slow", answer{Content: "found", DurationMS: 21})
	one.put(t.Context(), "r", tools.SearchTool, "fast", answer{Content: "found", DurationMS: 19})
	one.put(t.Context(), "r", "run_terminal_cmd", "command", answer{Content: "found", DurationMS: 21})
	one.put(t.Context(), "r", "grep", "cheap", answer{Content: "found", DurationMS: 1000})
	for key, data := range map[string]string{
		"damaged": `{"content":`, "long": `{"content":"` + strings.Repeat("x", tools.MaxContent+5<<10) + `"}`,
		"huge": strings.Repeat(" ", maxAnswer) + `{"content":"x"}`,
	} {
		if err := store.Put(t.Context(), sharedKey("r", key), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]bool{"slow": true, "command": true, "fast": false, "cheap": false,
		"damaged": false, "long": false, "huge": false} {
		t.Run(key, func(t *testing.T) {
			other := testCache(t, store, t.TempDir())
			a, ok := other.get(t.Context(), "r", tools.SearchTool, key)
			if ok != want || ok && a.Content != "found" {
				t.Errorf("%s: %v, %.20q", key, ok, a.Content)
			}
			if _, ok := testCache(t, store, t.TempDir()).get(t.Context(), "another", tools.SearchTool, key); ok {
				t.Errorf("%s is shared with another run", key)
			}
		})
	}
}

// scripted plays a rollout's turns in a service, and returns how the cache took each call, by turn.
func scripted(t *testing.T, log *eventlog.Log, run, id string, turns [][]events.ToolCall) (statuses []string) {
	t.Helper()
	servicetest.StartRollout(t, log, run, id, "a")
	for n, calls := range turns {
		e := servicetest.Event(t, run, events.TurnSampledType, id, events.Ordinal(n),
			events.TurnSampled{Turn: n, ToolCalls: calls, FinishReason: "tool_calls"})
		e.Route = poolRoute
		servicetest.Append(t, log, e)
		all := servicetest.Wait(t, log, run, events.ToolsCompletedType, id, n+1)
		var line []string
		for _, r := range servicetest.Data[events.ToolsCompleted](t, all[n]).Results {
			line = append(line, r.Cache)
		}
		statuses = append(statuses, strings.Join(line, " "))
	}
	return statuses
}

// TestWhichCallsAreKnown: what a rollout was answered, another is answered again, as long as its
// workspace shows the same; and nothing with a secret is kept.
func TestWhichCallsAreKnown(t *testing.T) {
	sandboxtest.Require(t)
	read := events.ToolCall{ID: "r", Name: "read_file", Arguments: `{"target_file":"a.txt"}`}
	secret := events.ToolCall{ID: "s", Name: "read_file", Arguments: `{"target_file":"secret"}`}
	list := events.ToolCall{ID: "l", Name: "list_dir", Arguments: `{"target_directory":"."}`}
	turns := [][]events.ToolCall{
		{read, list, secret}, {{ID: "w", Name: "write", Arguments: `{"file_path":"b","contents":"x"}`}, read},
		{read, list}, {shell("c", "echo new > a.txt")}, {read, list},
		{shell("c", "ln -s /tmp/x l")}, {read}, {shell("c", "rm l")}, {read},
		{{ID: "b", Name: "run_terminal_cmd", Arguments: `{"command":"sleep 100","is_background":true}`}}, {read},
	}
	log := natstest.Log(t)
	for run, features := range map[string][]string{"plain": nil, "redacted": {runfile.FeatureRedactSecrets}} {
		open(t, log, run, func(c *runfile.RunConfig) {
			c.Features = features
			c.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(),
				sandboxtest.Pack(t, map[string]string{"a.txt": "one\n", "secret": awsKey + "\n"}))
		})
	}
	open(t, log, "off", func(c *runfile.RunConfig) { off := false; c.Tools.Cache = &off })
	service(t, log, nil)
	const first = "miss miss miss|bypass miss|miss miss|bypass|miss bypass|bypass|bypass|bypass|hit|bypass|bypass"
	if got := strings.Join(scripted(t, log, "plain", "g000002-0", turns), "|"); got != first {
		t.Errorf("the first rollout: %s\nwant %s", got, first)
	}
	const second = "hit hit hit|bypass hit|hit hit|bypass|hit bypass|bypass|bypass|bypass|hit|bypass|bypass"
	if got := strings.Join(scripted(t, log, "plain", "g000002-1", turns), "|"); got != second {
		t.Errorf("the second: %s\nwant %s", got, second)
	}
	for i, want := range []string{"miss miss miss", "hit hit miss"} {
		if got := strings.Join(scripted(t, log, "redacted", fmt.Sprint("g000002-", i), turns[:1]), "|"); got != want {
			t.Errorf("rollout %d of a run without secrets: %s, want %s", i, got, want)
		}
	}
	if got := scripted(t, log, "off", "g000002-0", turns[:1]); got[0] != "  " {
		t.Errorf("without a cache: %q", got)
	}
}

// TestWhichCommandsAreKnown: of commands those that the task marks, word for word, as long as no
// other one has run, and where they change nothing.
func TestWhichCommandsAreKnown(t *testing.T) {
	sandboxtest.Require(t)
	read, background := shell("c", "cat a.txt"), events.ToolCall{ID: "b", Name: "run_terminal_cmd",
		Arguments: `{"command":"cat a.txt","is_background":true}`}
	turns := [][]events.ToolCall{
		{read}, {{ID: "w", Name: "write", Arguments: `{"file_path":"b","contents":"x"}`}, read},
		{shell("c", "echo no; exit 3")}, {shell("c", "echo more >> log"), read}, {read},
		{shell("c", "cat  a.txt")}, {read},
	}
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) {
		c.Tasks[0].Deterministic = []string{"cat a.txt", "echo no; exit 3", "echo more >> log"}
	})
	open(t, log, "unmarked", nil)
	service(t, log, nil)
	for i, want := range []string{"miss|bypass miss|miss|miss bypass|miss|bypass|bypass",
		"hit|bypass hit|hit|miss bypass|hit|bypass|bypass"} {
		if got := strings.Join(scripted(t, log, "r", fmt.Sprint("g000002-", i), turns), "|"); got != want {
			t.Errorf("rollout %d: %s, want %s", i, got, want)
		}
	}
	ran, known := results(t, log, "r", "g000002-0"), results(t, log, "r", "g000002-1")
	if !slices.Equal(ran, known) || !slices.Contains(known, "3 no\nexit code: 3") {
		t.Errorf("the first rollout is answered %q, the second %q", ran, known)
	}
	if got := strings.Join(scripted(t, log, "r", "g000002-2", [][]events.ToolCall{{background}, {read}}),
		"|"); got != "bypass|bypass" {
		t.Errorf("beside a command in the background: %s", got)
	}
	for i := range 2 {
		if got := scripted(t, log, "unmarked", fmt.Sprint("g000002-", i), turns[:1]); got[0] != "bypass" {
			t.Errorf("of a task that marks nothing: %s", got)
		}
	}
}

// results are exit codes and answers of a rollout's calls.
func results(t *testing.T, log *eventlog.Log, run, id string) (all []string) {
	t.Helper()
	for _, e := range servicetest.All(t, log, run, events.ToolsCompletedType) {
		for _, r := range servicetest.Data[events.ToolsCompleted](t, e).Results {
			if e.Entity == id {
				all = append(all, code(r)+" "+r.Content)
			}
		}
	}
	return all
}

// TestLinksThatCannotBeRead: a change that is no archive may have links.
func TestLinksThatCannotBeRead(t *testing.T) {
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := testCache(t, store, t.TempDir())
	ref := servicetest.Blob(t, store, []byte("no archive"))
	for range 2 {
		if links, err := c.links(context.Background(), &ref); err != nil || !links {
			t.Errorf("%v, %v", links, err)
		}
	}
}
