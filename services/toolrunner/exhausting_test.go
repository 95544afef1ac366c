package toolrunner

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// answered waits for a turn's answer, and fails the test where the rollout fails instead.
func answered(t *testing.T, log *eventlog.Log, run string, n int) events.ToolsCompleted {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if all := servicetest.All(t, log, run, events.ToolsCompletedType); len(all) > n {
			return servicetest.Data[events.ToolsCompleted](t, all[n])
		}
		for _, e := range servicetest.All(t, log, run, events.RolloutFailedType) {
			t.Fatalf("run %s failed: %+v", run, servicetest.Data[events.RolloutFailed](t, e))
		}
	}
	t.Fatalf("run %s: turn %d was not answered", run, n)
	return events.ToolsCompleted{}
}

// TestExhaustingTurns: whatever a turn leaves behind is answered, and none fails the rollout. What
// cannot be kept is lost, the model is told, and the next turn begins with the workspace before.
func TestExhaustingTurns(t *testing.T) {
	sandboxtest.Require(t)
	type attack struct {
		command string
		lost    string // what the answer says; "" where the turn is kept
	}
	attacks := map[string]attack{
		"sparse files":   {"truncate -s 200M a b c", "contents exceed"},
		"deep tree":      {"mkdir -p $(printf 'd/%.0s' $(seq 900))", "folders deep"},
		"terabyte":       {"truncate -s 1T sparse", ""},
		"special files":  {"mkfifo p; mknod dev c 1 3; cp /bin/true su; chmod 4755 su; ln -s /etc/passwd out; ln -s loop loop", ""},
		"names":          {`printf x > "$(printf 'a\377\376b')"; printf x > "$(printf 'new\nline')"; touch -- -rf '*' ' '`, ""},
		"shut folders":   {"mkdir shut; echo x > shut/f; chmod 000 shut; echo y > g; chmod 000 g; chmod 000 .", ""},
		"no workspace":   {"rm -rf /app; mv /app /tmp/x", ""},
		"daemon":         {"setsid sh -c 'while :; do echo x >> d; done' >/dev/null 2>&1 & echo done", ""},
		"endless output": {"yes", ""},
		"fork bomb":      {":(){ :|:& };:", ""},
		"signals":        {"kill -9 1; kill -STOP 1; kill -STOP -1; kill -9 -1", ""},
	}
	if nightly.On() { // what sandbox and tree do with these, their own tests show
		maps.Copy(attacks, map[string]attack{
			"large file": {"head -c 70000000 /dev/urandom > big", ""},
			"hard links": {"head -c 100000000 /dev/zero > a; for i in 1 2 3; do ln a a$i; done", "contents exceed"},
			"deeper tree": {"for i in 1 2 3; do d=$(printf 'abcdefgh/%.0s' $(seq 400)); mkdir -p $d; cd $d; done",
				"folders deep"},
			"full disk": {"head -c 250000000 /dev/zero > a; head -c 250000000 /dev/zero > b", ""},
			"memory":    {"tail /dev/zero", ""},
		})
	}
	log := natstest.Log(t)
	s, _ := service(t, log, nil)
	for name, a := range attacks {
		run := strings.ReplaceAll(name, " ", "-")
		t.Run(run, func(t *testing.T) {
			open(t, log, run, func(c *runfile.RunConfig) { c.Limits.Tries = 1 })
			turn(t, log, run, 0, poolRoute, shell("c0", "echo kept > before.txt"))
			before := answered(t, log, run, 0)
			route := runfile.RunnerRoute(s.runner, runfile.Needs{})
			turn(t, log, run, 1, route, shell("c1", "true"), shell("c2", a.command))
			done := answered(t, log, run, 1)
			last := done.Results[1]
			if lost := done.Lost != ""; lost != (a.lost != "") || !strings.Contains(done.Lost, a.lost) ||
				lost && (!last.Error || !strings.Contains(last.Content, done.Lost)) {
				t.Errorf("lost as %q, which the model reads as %.500q", done.Lost, last.Content)
			}
			if a.lost == "" {
				return
			}
			if done.Workspace == nil || *done.Workspace != *before.Workspace || done.Isolation == "" {
				t.Errorf("the turn leaves %+v in %q, want %+v", done.Workspace, done.Isolation, before.Workspace)
			}
			turn(t, log, run, 2, route, shell("c3", "cat before.txt; ls"))
			if done = answered(t, log, run, 2); !strings.HasPrefix(done.Results[0].Content,
				"kept\na.txt\nbefore.txt\n") || done.Lost != "" {
				t.Errorf("the turn behind it answers %.500q, lost as %q", done.Results[0].Content, done.Lost)
			}
		})
	}
}

// TestSandboxThatEndsEachTime: when a rollout's sandbox ends in a turn for no reason
// that is known, the turn is tried again. After the last try a sandbox that works shows
// that it is the turn's doing.
func TestSandboxThatEndsEachTime(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) { c.Limits.Tries = 2 })
	s, _ := newServiceOnly(t, log)
	turn(t, log, "r", 0, poolRoute, shell("c0", "true"))
	if _, _, err := log.Appender.Append(t.Context(), handle(t, s, log)[0]); err != nil {
		t.Fatal(err)
	}
	sampled := turn(t, log, "r", 1, runfile.RunnerRoute(s.runner, runfile.Needs{}),
		shell("c1", "true"), shell("c2", "true"))
	ended := s.held.boxes["r/"+rollout]
	ended.Close()
	for _, want := range []events.Type{events.RolloutRetriedType, events.ToolsCompletedType} {
		s.held.put(ended)
		facts, _ := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: sampled})
		if len(facts) != 1 || facts[0].Type != want {
			t.Fatalf("%+v, want %s", facts, want)
		}
		if _, _, err := log.Appender.Append(t.Context(), facts[0]); err != nil {
			t.Fatal(err)
		}
	}
	done := answered(t, log, "r", 1)
	if !strings.HasPrefix(done.Lost, "the sandbox ended") || len(done.Results) != 2 || !done.Results[0].Error ||
		!strings.Contains(done.Results[1].Content, "nothing that this turn did is kept") ||
		done.Isolation == "" {
		t.Errorf("answered %+v", done)
	}
}

// TestTimeOfTools: an agent that only waits runs into the end of its tools' time, and not into the
// rollout's deadline, which would be nobody's reward.
func TestTimeOfTools(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) { c.Limits.Timeout = runfile.Duration(2 * time.Second) })
	service(t, log, nil)
	turn(t, log, "r", 0, poolRoute, shell("c0", "sleep 2; echo waited"), shell("c1", "echo never"))
	done := answered(t, log, "r", 0)
	if !strings.Contains(done.Results[0].Content, "waited") || !done.Results[1].Error ||
		!strings.Contains(done.Results[1].Content, "the time that tools may take in a rollout is over") {
		t.Errorf("answered %+v", done.Results)
	}
}

// TestTimeOfAgent: when the time that the task gives its agent is over, no call of the last turn is
// begun, however much time its tools have left.
func TestTimeOfAgent(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) { c.Tasks[0].AgentTimeout = runfile.Duration(time.Minute) })
	service(t, log, nil)
	for n, c := range []struct {
		latency float64
		says    string
	}{{59_000, "yes"}, {900, "the time that tools may take in a rollout is over"}} {
		called := events.TurnSampled{Turn: n, ToolCalls: []events.ToolCall{shell("c", "sleep 0.2; echo yes")},
			LatencyMS: c.latency}
		sampled := servicetest.Event(t, "r", events.TurnSampledType, rollout, events.Ordinal(n), called)
		sampled.Route = poolRoute
		servicetest.Append(t, log, sampled)
		if done := answered(t, log, "r", n); !strings.Contains(done.Results[0].Content, c.says) {
			t.Errorf("turn %d is answered %+v", n, done.Results)
		}
	}
}
