package toolrunner

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tasks"
)

// asks is a call that asks the sandbox's proxy and prints the status and the last
// line of what it answers.
func asks(id, path string) events.ToolCall {
	return shell(id, fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/888 && printf 'GET %s HTTP/1.0\r\n\r\n' >&3 && tr -d '\r' <&3 | sed -n '1p;$p'`, path))
}

// networked opens a run with a network, answers turns of one call each by a tool runner that lets
// it have some, and gives the rollout.
func networked(t *testing.T, log *eventlog.Log, run string, task *netaccess.Network, opts egress.Options,
	paths ...string) []events.ToolsCompleted {
	t.Helper()
	open(t, log, run, func(cfg *runfile.RunConfig) {
		cfg.Network = &netaccess.Network{Allow: []string{"go", "npm"}}
		cfg.Tasks[0].Network = task
	})
	env := servicetest.Env(t, log)
	var done []events.ToolsCompleted
	for n, path := range paths { // each by a new runner: the rollout moves on
		s, err := newService(env, Options{Slots: 1, Pool: poolRoute,
			Machine: tasks.Machine{ToolchainCache: t.TempDir()}, Network: opts})
		if err != nil {
			t.Fatal(err)
		}
		e := turn(t, log, run, n, poolRoute, asks(fmt.Sprint("c", n), path))
		made, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: e})
		if err != nil || len(made) != 1 || made[0].Type != events.ToolsCompletedType {
			t.Fatalf("turn %d is answered %v, %v", n, made, err)
		}
		servicetest.Append(t, log, made[0])
		done = append(done, servicetest.Data[events.ToolsCompleted](t, made[0]))
		s.held.closeAll()
		s.cache.close()
	}
	return done
}

// TestNetworkOfARollout fetches in one turn, and finds it as it was in the next, by another runner,
// when the mirror has changed. A replay finds the same when the mirror is gone.
func TestNetworkOfARollout(t *testing.T) {
	sandboxtest.Require(t)
	var asked atomic.Int64
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "v1.0.%d\n", asked.Add(1))
	}))
	defer mirror.Close()
	opts := egress.Options{Allow: []string{"go"}, Registries: map[string][]string{"go": {mirror.URL}}}
	log := natstest.Log(t)
	const path = "/go/example.org/m/@v/list"
	done := networked(t, log, "r", nil, opts, path, path, "/npm/demo")
	for n, turn := range done[:2] {
		if !strings.HasPrefix(turn.Results[0].Content, "HTTP/1.0 200 OK\nv1.0.1\n") {
			t.Errorf("turn %d: %q", n, turn.Results[0].Content)
		}
		use := turn.Network
		if use == nil || use.Requests != 1 || len(use.Fetches) != 1 || use.Fetches[0].URL != path ||
			use.Fetches[0].Kept != (n == 1) || use.Fetches[0].SHA256 == "" || use.Received != 7 {
			t.Errorf("turn %d lists %+v", n, use)
		}
	}
	if refused := done[2]; !strings.Contains(refused.Results[0].Content,
		"this tool runner lets no run reach the registry npm") || refused.Network.Refused != 1 {
		t.Errorf("what the operator does not allow answers %q, listed as %+v", refused.Results[0].Content,
			refused.Network)
	}
	mirror.Close()
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	found := repeat(t, log, r)
	if len(found.Changed) > 0 || found.Turns != 3 || asked.Load() != 1 {
		t.Errorf("%+v; the mirror was asked %d times", found, asked.Load())
	}
}

// TestTaskWantsNoNetwork has a task that asks for none in a run that has
// one: nothing listens there.
func TestTaskWantsNoNetwork(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	done := networked(t, log, "r", &netaccess.Network{}, egress.Options{Allow: []string{"go"}}, "/go/x")
	if !strings.Contains(done[0].Results[0].Content, "Connection refused") || done[0].Network != nil {
		t.Errorf("answers %q, listed as %+v", done[0].Results[0].Content, done[0].Network)
	}
}
