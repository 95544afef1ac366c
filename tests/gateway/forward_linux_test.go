package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/nightly"
	planes "github.com/rondo-rl/rondo/tests/plane"
	"github.com/rondo-rl/rondo/tests/program"
)

// gated is a model whose answers behind some requests wait until they are let go.
type gated struct {
	asked, answer chan struct{}
}

// at lets requests with so many messages wait.
func (g gated) at(messages int, model func(int, ask) said) func(int, ask) said {
	return func(n int, a ask) said {
		if len(a.Messages) == messages {
			g.asked <- struct{}{}
			select {
			case <-a.leave:
			case <-g.answer:
			}
		}
		return model(n, a)
	}
}

// cameBack checks a rollout whose agent was started anew: it ended as one that was not disturbed,
// with each of its turns on the log once, and gives how often the agent was started anew.
func cameBack(t *testing.T, log *eventlog.Log, rollout string, turns int) (restarts int) {
	t.Helper()
	scored := servicetest.WaitData[events.RolloutScored](t, log, "r", events.RolloutScoredType, rollout)
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	ended, digests := r.AgentEnded(), map[string]bool{}
	for _, turn := range r.Turns {
		digests[turn.RequestDigest] = true
	}
	if scored.Reward != 1 || r.Finished.StopReason != events.StopFinished || r.Finished.Turns != turns ||
		r.Finished.Samples != 1 ||
		len(r.Turns) != turns || len(digests) != turns || len(ended.Left) > 0 ||
		r.Restarts > 0 != (ended.Recalled > 0) || ended.Requests < turns {
		t.Errorf("%s: reward %g, %d turns, %d digests, ended %+v, finished %+v, %d restarts", rollout,
			scored.Reward, len(r.Turns),
			len(digests), ended, r.Finished, r.Restarts)
	}
	return r.Restarts
}

// sampledOnce checks that a model was asked for each turn with a seed of its own, and again with
// the same seed where the one who asked was lost before the answer.
func sampledOnce(t *testing.T, b *backend, turns, lost int) {
	t.Helper()
	seeds := map[int64]bool{}
	for _, a := range b.seen() {
		seeds[a.Seed] = true
	}
	if asks := len(b.seen()); len(seeds) != turns || asks > turns+lost {
		t.Errorf("the model was asked %d times with %d seeds for %d turns, and %d agents were lost", asks,
			len(seeds), turns, lost)
	}
}

// TestAgentsComeBack: agents whose runner is stopped, or whose sandboxes are killed, are started
// anew: their recorded turns are answered from the log, and their rollouts end as undisturbed ones.
func TestAgentsComeBack(t *testing.T) {
	t.Parallel()
	sandboxtest.Require(t)
	killed := func(t *testing.T, _ *plane, b *backend, _ func()) { killSandboxes(t, b, os.Getpid(), 2) }
	for name, c := range map[string]struct {
		what string
		lose func(t *testing.T, p *plane, b *backend, stop func())
	}{
		"runner":                {"mend", func(_ *testing.T, p *plane, _ *backend, stop func()) { stop(); p.agents() }},
		"sandbox":               {"mend", killed},
		"sandbox with an image": {"shows", killed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gated{make(chan struct{}, 8), make(chan struct{})}
			p, b := newAgentPlane(t, c.what, g.at(5, mends), func(cfg *runfile.RunConfig) {
				cfg.Vision = c.what == "shows"
				cfg.GroupSize, cfg.InFlight, cfg.Epochs, cfg.Feeds, cfg.Limits.AgentRestarts = 2, 2, 1, nil, 1
			})
			stop := p.agents()
			for range 2 { // both wait for their third turn
				<-g.asked
			}
			c.lose(t, p, b, stop)
			servicetest.Wait(t, p.log, "r", events.RolloutRetriedType, "*", 2)
			close(g.answer)
			for _, rollout := range []string{"g000001-0", "g000001-1"} {
				if n := cameBack(t, p.log, rollout, 3); n != 1 {
					t.Errorf("%s was started anew %d times", rollout, n)
				}
				retried := servicetest.WaitData[events.RolloutRetried](t, p.log, "r", events.RolloutRetriedType,
					rollout)
				if retried.Behind != 2 || retried.Class != events.ClassSandbox {
					t.Errorf("%s: %+v", rollout, retried)
				}
			}
			sampledOnce(t, b, 6, 2)
			if first := p.rollout(member{Rollout: "g000001-0"}).Turns[0].Prompt[0]; len(
				first.Images) == 1 != (c.what == "shows") {
				t.Errorf("the agent has asked %+v", first)
			}
			servicetest.Wait(t, p.log, "r", events.RunClosedType, "r", 1)
			planes.Prove(t, p.log, "r")
		})
	}
}

// TestAgentsAreNotStartedForEver: behind limits.agent_restarts the rollout fails as the machine's.
func TestAgentsAreNotStartedForEver(t *testing.T) {
	t.Parallel()
	g := gated{make(chan struct{}, 8), make(chan struct{})}
	p, b := newAgentPlane(t, "mend", g.at(3, mends), func(cfg *runfile.RunConfig) {
		cfg.GroupSize, cfg.InFlight, cfg.Epochs, cfg.Feeds, cfg.Limits.AgentRestarts = 1, 1, 1, nil, 1
	})
	p.agents()
	for range 2 {
		<-g.asked
		killSandboxes(t, b, os.Getpid(), 1)
	}
	failed := servicetest.WaitData[events.RolloutFailed](t, p.log, "r", events.RolloutFailedType, "g000001-0")
	if failed.Class != events.ClassSandbox || failed.Stage != events.StageTools ||
		!strings.Contains(failed.Message, "behind 1 turns (limits.agent_restarts: 1)") {
		t.Errorf("failed %+v", failed)
	}
	sampledOnce(t, b, 2, 1)
	servicetest.Wait(t, p.log, "r", events.RunClosedType, "r", 1)
	planes.Prove(t, p.log, "r")
}

// TestAnAgentThatDiffers: an agent that asks otherwise when it is started anew goes on from its
// last equal turn. What it left behind is on the log and in no sample.
func TestAnAgentThatDiffers(t *testing.T) {
	t.Parallel()
	g := gated{make(chan struct{}, 8), make(chan struct{})}
	differs := func(n int, a ask) said {
		if len(a.Messages) == 3 { // what it answers holds no mask
			args, _ := json.Marshal(
				map[string]string{"command": "head -c 8 /dev/urandom | od -An -tx1; echo two >> a.txt"})
			return said{content: "I shall.", calls: [][2]string{{"sh", string(args)}}}
		}
		if len(a.Messages) == 5 {
			args, _ := json.Marshal(map[string]string{"command": "true"})
			return said{content: "And.", calls: [][2]string{{"sh", string(args)}}}
		}
		return mends(n, a)
	}
	p, b := newAgentPlane(t, "mend", g.at(7, differs), func(cfg *runfile.RunConfig) {
		cfg.GroupSize, cfg.InFlight, cfg.Feeds = 2, 2, []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	})
	p.agents()
	for range 2 {
		<-g.asked
	}
	killSandboxes(t, b, os.Getpid(), 2)
	servicetest.Wait(t, p.log, "r", events.RolloutRetriedType, "*", 2)
	close(g.answer)
	batch := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	if batch.Samples != 4 {
		t.Errorf("a batch of %d samples, want two for each of two rollouts: up to the branch, and behind it",
			batch.Samples)
	}
	for _, rollout := range []string{"g000001-0", "g000001-1"} {
		r, err := p.log.Rollout(t.Context(), "r", rollout)
		if err != nil {
			t.Fatal(err)
		}
		if ended := r.AgentEnded(); len(r.Turns) != 5 || ended.Recalled != 2 || fmt.Sprint(ended.Left) != "[2]" ||
			r.Finished.Turns != 4 ||
			r.Finished.Samples != 2 || r.Scored.Reward != 1 {
			t.Errorf("%s: %d turns, ended %+v, finished %+v", rollout, len(r.Turns), ended, r.Finished)
		}
	}
	servicetest.CloseRun(t, p.log, "r")
	planes.Prove(t, p.log, "r")
}

// TestAgentsComeBackFromAnything kills sandboxes and tool runners, with the gateways that these
// have, while agents work: each recorded turn is answered from the log and counted once.
func TestAgentsComeBackFromAnything(t *testing.T) {
	t.Parallel()
	sandboxtest.Require(t)
	rollouts, turns, kills := nightly.Count(4, 200), nightly.Count(8, 30), nightly.Count(3, 100)
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	objects := t.TempDir()
	store, err := dir.Open(objects)
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.New(conn, store)
	if err == nil {
		err = log.Streams.Ensure(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int64
	const slots = 2 // of each of two runners
	p, b := newAgentPlaneOn(t, log, "mend", func(_ int, a ask) said {
		time.Sleep(rand.N(20 * time.Millisecond)) // kills find requests at any moment
		answered.Add(1)
		if n := len(a.Messages) / 2; n < turns-1 {
			args, _ := json.Marshal(map[string]string{"command": fmt.Sprintf("echo %d >> a.txt; cat a.txt", n)})
			return said{content: fmt.Sprint("Step ", n), calls: [][2]string{{"sh", string(args)}}}
		}
		return said{content: "Done."}
	}, func(cfg *runfile.RunConfig) {
		cfg.GroupSize, cfg.InFlight, cfg.Epochs, cfg.Feeds = rollouts, runfile.InFlight(rollouts), 1, nil
		cfg.Limits.Turns, cfg.Limits.AgentRestarts, cfg.Limits.Tries = turns, runfile.Deliveries-1, runfile.Deliveries
		cfg.Limits.Timeout = runfile.Duration(time.Hour)
		test := fmt.Sprintf(`[ "$(wc -l < a.txt)" = %d ] && r=1 || r=0; echo "{\"reward\": $r}" > /logs/verifier/reward.json`+"\n", turns)
		cfg.Tasks[0].Tests = servicetest.Blob(t, store, sandboxtest.Pack(t, map[string]string{"test.sh": test}))
	})
	rondo := program.NewClient(t, program.Binary(t), program.Over(server.URL(), objects)...)
	runner := func() *program.Process {
		return rondo.Start("service", "toolrunner", "--tool-slots", fmt.Sprint(slots))
	}
	runners := []*program.Process{runner(), runner()}
	for killed := range kills {
		at := int64((killed + 1) * rollouts * turns / (kills + 2)) // the work, not the time, says when
		program.Eventually(t, func() error {
			if answered.Load() < at {
				return fmt.Errorf("%d turns of %d", answered.Load(), at)
			}
			return program.Alive(runners...)
		})
		if i := killed % 4; i < 2 {
			runners[i].Kill()
			runners[i] = runner()
		} else {
			killSandboxes(t, b, runners[i-2].Cmd.Process.Pid, 1)
		}
	}
	restarts := 0
	for i := range rollouts {
		restarts += cameBack(t, p.log, events.RolloutID("g000001", i), turns)
	}
	tries := len(servicetest.All(t, p.log, "r", events.RolloutRetriedType))
	t.Logf("%d kills, %d agents started anew behind turns, %d requests for %d turns", kills, restarts,
		len(b.seen()), rollouts*turns)
	if restarts == 0 {
		t.Error("no agent was started anew")
	}
	sampledOnce(t, b, rollouts*turns, max(tries, kills*slots))
	servicetest.Wait(t, p.log, "r", events.RunClosedType, "r", 1)
	planes.Prove(t, p.log, "r")
}

// killSandboxes kills the first processes of so many sandboxes of a process, in which agents work
// for a model. One that ends meanwhile is not killed: the test looks again. Where there are none at
// the moment, none is killed by night; by day the test waits for them.
func killSandboxes(t *testing.T, b *backend, parent, count int) {
	t.Helper()
	model := " " + b.host() + " " // the last argument of this test's agents, and of no other's
	var killed []int
	program.Eventually(t, func() error {
		var found []int
		for pid, line := range processes(t) {
			if first, inside := below(parent, pid); inside && strings.HasPrefix(line, runfile.AgentFolder+"/agent ") &&
				strings.HasSuffix(line, model) && !slices.Contains(append(found, killed...), first) {
				found = append(found, first)
			}
		}
		if len(killed)+len(found) < count && !nightly.On() {
			return fmt.Errorf("killed %d sandboxes, and %d agents work, want %d", len(killed), len(found), count)
		}
		for _, pid := range found[:min(count-len(killed), len(found))] {
			err := syscall.Kill(pid, syscall.SIGKILL)
			if errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("the sandbox of process %d has ended before it was killed", pid)
			}
			if err != nil {
				t.Fatal(err)
			}
			killed = append(killed, pid)
		}
		return nil
	})
}

// processes are the command lines of all processes.
func processes(t *testing.T) map[int]string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[int]string{}
	for _, name := range all {
		if line, err := os.ReadFile(name); err == nil {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			lines[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	return lines
}

// below reports whether a process descends from another one, and by which of that one's children.
func below(parent, pid int) (child int, is bool) {
	for pid > 1 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, false
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		up, err := strconv.Atoi(fields[1])
		if err != nil {
			return 0, false
		}
		if up == parent {
			return pid, true
		}
		pid = up
	}
	return 0, false
}
