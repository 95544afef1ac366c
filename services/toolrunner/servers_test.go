package toolrunner

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tasks"
)

// counter is a server that counts its calls, and knows an older revision of the protocol.
const counter = `#!/bin/sh
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"initialize"'*) answer '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"counter","version":"1"}}' ;;
  *'"tools/list"'*) answer '"result":{"tools":[{"name":"count","description":"Counts.","inputSchema":{"type":"object","additionalProperties":false},"annotations":{"readOnlyHint":true}}]}' ;;
  *'"tools/call"'*) n=$((n + 1)); echo "$n" > count.txt; answer '"result":{"content":[{"type":"text","text":"call '$n'"}]}' ;;
  *'"id"'*) answer '"error":{"code":-32601,"message":"unknown"}' ;;
  esac
done
`

// wiki is a server outside, whose tools are others after it was opened.
type wiki struct {
	away, changed atomic.Bool
	calls         atomic.Int64
}

const wikiKey = "key-of-the-wiki-that-nobody-sees"

func (k *wiki) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &message) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if k.away.Load() || r.Header.Get("Authorization") != "Bearer "+wikiKey {
		http.Error(w, r.Header.Get("Authorization"), http.StatusServiceUnavailable)
		return
	}
	answer := `"error":{"code":-32601,"message":"unknown"}`
	switch message.Method {
	case "initialize":
		answer = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"wiki","version":"1"}}`
	case "tools/list":
		if answer = `"result":{"tools":[]}`; !k.changed.Load() {
			answer = `"result":{"tools":[{"name":"look","inputSchema":{"type":"object","properties":{"page":{"type":"integer"}},"required":["page"]}},{"name":"edit","inputSchema":{"type":"object"}}]}`
		}
	case "tools/call":
		answer = fmt.Sprintf(`"result":{"content":[{"type":"text","text":"look %d by %s"}]}`, k.calls.Add(1),
			r.Header.Get("Authorization"))
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, message.ID, answer)
}

// wikiKeys shows the wiki its key, and no other server.
func wikiKeys(t *testing.T, url string) fleet.Keys {
	t.Helper()
	t.Setenv("WIKI_KEY", wikiKey)
	keys, err := fleet.ReadKeys(fmt.Appendf(nil, "keys: [{url: %q, key_env: WIKI_KEY}]", url))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestToolServers: tools of a server in the sandbox and of one outside, through two real runners.
// What they offer is what they offered when the run was opened, their answers are never taken for
// known, and no key is kept.
func TestToolServers(t *testing.T) {
	sandboxtest.Require(t)
	outside := &wiki{}
	web := httptest.NewServer(outside)
	defer web.Close()
	keys := wikiKeys(t, web.URL)
	log := natstest.Log(t)
	open(t, log, "r", func(cfg *runfile.RunConfig) {
		cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(),
			sandboxtest.Pack(t, map[string]string{"a.txt": "one\n", "counter": counter}))
		cfg.Tools.Servers = []toolset.Server{{Name: "counter", Command: []string{"sh", "counter"}},
			{Name: "wiki", URL: web.URL, Only: []string{"look"}}}
		if err := ListTools(t.Context(), log.Store(), Options{Machine: tasks.Machine{ToolchainCache: t.TempDir()},
			Keys: keys}, "r", cfg); err != nil {
			t.Fatal(err)
		}
	})
	outside.changed.Store(true)
	cfg, err := log.RecordedConfig(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if s := cfg.Tools.Servers; len(s) != 2 || !s[0].Tools[0].ReadOnly || len(s[1].Tools) != 1 ||
		s[1].Tools[0].Name != "look" || s[1].Tools[0].Parameters["type"] != "object" {
		t.Fatalf("recorded are %+v", s)
	}
	withKeys := func(s *Service) { s.held.opts.Keys = keys }
	calls := func(n int, arguments ...string) (list []events.ToolCall) {
		for i := 0; i < len(arguments); i += 2 {
			list = append(list, events.ToolCall{ID: fmt.Sprintf("c%d-%d", n, i/2), Name: arguments[i],
				Arguments: arguments[i+1]})
		}
		return list
	}
	first, stop := service(t, log, withKeys)
	read := `{"target_file":"a.txt"}`
	turn(t, log, "r", 0, poolRoute, calls(0,
		"read_file", read, "counter__count", "{}", "wiki__look", `{"page":1}`, "wiki__look", `{"page":"one"}`,
		"read_file", read, "wiki__edit", "{}")...)
	done := answers(t, log, "r", 0)
	for i, want := range []struct {
		content, cache string
		failed         bool
	}{
		// as the server may change what it likes at any time, which is called beside it
		{"1|one\n", toolset.CacheBypass, false},
		{"call 1", toolset.CacheBypass, false},
		{"look 1 by Bearer [redacted]", toolset.CacheBypass, false},
		{"error: `page` must be an integer, got \"one\"", toolset.CacheBypass, true},
		{"1|one\n", toolset.CacheBypass, false},
		{`error: there is no tool "wiki__edit"`, toolset.CacheBypass, true},
	} {
		if got := done.Results[i]; !strings.HasPrefix(got.Content, want.content) || got.Cache != want.cache ||
			got.Error != want.failed {
			t.Errorf("call %d is answered %+v, want %+v", i, got, want)
		}
	}
	if done.State == nil || !done.State.Background || done.Workspace == nil {
		t.Errorf("the turn leaves %+v, workspace %v", done.State, done.Workspace)
	}
	turn(t, log, "r", 1, runfile.RunnerRoute(first.runner, runfile.Needs{}),
		calls(1, "counter__count", "{}", "read_file", read)...)
	if got := answers(t, log, "r", 1).Results; got[0].Content != "call 2" || got[1].Cache != toolset.CacheBypass {
		t.Errorf("the next turn is answered %+v", got)
	}
	stop()
	second, _ := service(t, log, withKeys)
	outside.away.Store(true)
	turn(t, log, "r", 2, runfile.RunnerRoute(second.runner, runfile.Needs{}),
		calls(2, "counter__count", "{}", "wiki__look", `{"page":2}`)...)
	retried := servicetest.Data[events.RolloutRetried](t,
		servicetest.Wait(t, log, "r", events.RolloutRetriedType, rollout, 1)[0])
	if retried.Class != events.ClassEndpoint || !strings.Contains(retried.Message, "server wiki: ") ||
		!strings.Contains(retried.Message, "unreachable: it answered Service Unavailable") {
		t.Errorf("a server that is away is told as %+v", retried)
	}
	outside.away.Store(false)
	if got := answers(t, log, "r", 2).Results; got[0].Content != "call 1" ||
		got[1].Content != "look 2 by Bearer [redacted]" {
		t.Errorf("another runner answers %+v", got)
	}
	repeatServers(t, log, outside)
	noKey(t, log)
}

// repeatServers runs the calls again: those of the server inside, which was started again between
// two turns, and not those of the other.
func repeatServers(t *testing.T, log *eventlog.Log, outside *wiki) {
	t.Helper()
	asked := outside.calls.Load()
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	found := repeat(t, log, r)
	if len(found.Changed) > 0 || found.Outside != 3 || found.Calls != 7 || outside.calls.Load() != asked {
		t.Errorf("%d calls outside while repeating, %+v", outside.calls.Load()-asked, found)
	}
}

// noKey looks for the key in all that is kept of the run.
func noKey(t *testing.T, log *eventlog.Log) {
	t.Helper()
	for _, e := range servicetest.All(t, log, "r") {
		if strings.Contains(string(e.Data), wikiKey) {
			t.Errorf("%s tells the key", e.Type)
		}
	}
	for info, err := range log.Store().List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if data, err := log.Store().Get(t.Context(), info.Key); err != nil || strings.Contains(string(data), wikiKey) {
			t.Errorf("object %s tells the key, or %v", info.Key, err)
		}
	}
}

// TestServersThatCannotBeListed say why, and what to do.
func TestServersThatCannotBeListed(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	task := servicetest.Config("a").Tasks[0]
	task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"counter": counter}))
	for want, cfg := range map[string]runfile.RunConfig{
		"no task of the run": {Tools: toolset.Tooling{Servers: []toolset.Server{{Name: "s",
			Command: []string{"sh", "counter"}}}}},
		"command not found": {Tasks: []runfile.TaskSpec{task},
			Tools: toolset.Tooling{Servers: []toolset.Server{{Name: "s", Command: []string{"uvx-of-nobody"}}}}},
		"has no tool \"fly\"": {Tasks: []runfile.TaskSpec{task},
			Tools: toolset.Tooling{Servers: []toolset.Server{{Name: "s", Command: []string{"sh", "counter"},
				Only: []string{"fly"}}}}},
		"without credentials": {Tools: toolset.Tooling{Servers: []toolset.Server{{Name: "s",
			URL: "https://me:" + wikiKey + "@example.com/mcp"}}}},
		"unreachable": {Tools: toolset.Tooling{Servers: []toolset.Server{{Name: "s",
			URL: "http://127.0.0.1:1/mcp"}}}},
	} {
		t.Run(want, func(t *testing.T) {
			given := slices.Clone(cfg.Tools.Servers)
			err := ListTools(t.Context(), log.Store(),
				Options{Machine: tasks.Machine{ToolchainCache: t.TempDir()}}, "r", &cfg)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), wikiKey) {
				t.Errorf("%s: %v", want, err)
			}
			if len(given[0].Tools) > 0 {
				t.Errorf("%s: the caller's own servers are changed", want)
			}
		})
	}
}
