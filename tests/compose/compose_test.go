// Package compose_test brings compose.yaml up for real, as somebody would who has
// just cloned the repository.
package compose_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/topology"
)

const (
	// run is what the profile demo opens.
	run = "demo-1"
	// steps is as few as show the learning beyond doubt: the first two steps have a mean reward of
	// some 0.45, the last two of some 0.75.
	steps  = 4
	learnt = 0.12 // what the last two steps have to be above the first two
	// publish is an address apart from what runs on this machine.
	publish = "127.0.86.1"
	// patience is for a machine that does much else.
	patience = 25 * time.Minute
)

// TestComposeUp: the shipped files, unchanged, on a real engine.
func TestComposeUp(t *testing.T) {
	needEngine(t)
	cache := cacheDir(t)
	useCompose(t, cache)
	standInImages(t, cache)
	t.Cleanup(func() { exec.Command("docker", "image", "rm", "rondo:local", "rondo-runner:local").Run() })
	t.Run("one server", oneServer)
	t.Run("three servers", threeServers)
}

// oneServer: the demo learns, although containers are killed and everything is taken down
// and up again meanwhile; each service does its part and no other's; and the run's log holds
// what Rondo promises of it.
func oneServer(t *testing.T) {
	s := newStack(t, map[string]string{"RONDO_DEMO_STEPS": fmt.Sprint(steps), "RONDO_PUBLISH": publish})
	up := []string{"--profile", "demo", "up", "--detach", "--wait", "--wait-timeout", "1200"}
	s.compose(append(up, "--build")...)

	keys := s.keysOf(topology.Generator)
	// The first blow comes as early as it can, while the run surely goes on. What follows may come
	// behind its end on a slow machine.
	s.shows(1)
	before := s.shown()
	if before == steps {
		t.Fatal("the run ended before everything was taken down")
	}
	s.compose("--profile", "demo", "down")
	s.compose(up...)
	s.connect(keys) // they are good for as long as their volume
	s.kill("nats")
	s.kill("s3")
	others := []string{"policy", "trainer"}
	for _, service := range topology.Services {
		others = append(others, service.Name)
	}
	s.kill(others...)   // all at once
	s.shows(before + 1) // a new container, which shows what was there before too
	s.locked()
	s.doctor()
	s.gateway()
	s.scraped()

	s.demoEnds()
	if log := s.compose("logs", "--no-log-prefix", "demo"); !strings.Contains(log,
		fmt.Sprintf("step  %d/%d", steps, steps)) || !strings.Contains(log, "The reward went from") {
		t.Errorf("the demo's log shows no learning:\n%s", log)
	}
	s.checkRun()
	// Up once more with a demo that has ended: it says so again, and is no failure.
	s.compose("--profile", "demo", "up", "--detach")
	s.eventually(2*time.Minute, "the demo ends again",
		func() bool { return s.inspect(s.container("demo")).State.Status == "exited" })
	if again := s.show(run); again.State != "closed" || len(again.Rewards) != steps {
		t.Errorf("after another up the run is %s with the rewards %v", again.State, again.Rewards)
	}
}

// demoEnds waits for it.
func (s *stack) demoEnds() {
	s.t.Helper()
	s.eventually(patience, "the demo ends", func() bool {
		return s.inspect(
			s.container("demo")).State.Status == "exited"
	})
	if code := s.inspect(s.container("demo")).State.ExitCode; code != 0 {
		s.t.Errorf("the demo ended with exit code %d", code)
	}
}

// shown is how many steps the demo's container has told of.
func (s *stack) shown() int {
	s.t.Helper()
	log, err := docker("logs", s.container("demo")).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, log)
	}
	return strings.Count("\n"+string(log), "\nstep ")
}

// shows waits until the demo has told of so many steps.
func (s *stack) shows(n int) {
	s.t.Helper()
	s.eventually(patience, fmt.Sprintf("the demo's step %d", n), func() bool { return s.shown() >= n })
}

// checkRun looks at the whole run: it learnt, nothing is lost or doubled, and every
// decision comes out again.
func (s *stack) checkRun() {
	s.t.Helper()
	end := s.show(run)
	s.t.Logf("%s: %s, %d events, rewards %.3f", run, end.State, end.Events, end.Rewards)
	if end.State != "closed" || len(end.Rewards) != steps {
		s.t.Fatalf("the run is %s after %d steps", end.State, len(end.Rewards))
	}
	first, last := (end.Rewards[0]+end.Rewards[1])/2, (end.Rewards[steps-2]+end.Rewards[steps-1])/2
	if last-first < learnt {
		s.t.Errorf("the reward went from %.3f to %.3f: nothing is learnt", first, last)
	}
	s.promises()
}

// promises holds the run to what Rondo promises of its log.
func (s *stack) promises() {
	s.t.Helper()
	if out, err := s.rondo("audit", run); err != nil {
		s.t.Errorf("%v\n%s", err, out)
	}
	out, err := s.rondo("replay", run, "--verify", "--json")
	var verified struct {
		Checked     map[string]int `json:"checked"`
		Differences int            `json:"differences"`
	}
	if err != nil || json.Unmarshal([]byte(out), &verified) != nil || verified.Differences != 0 ||
		len(verified.Checked) == 0 {
		s.t.Errorf("replay --verify: %v\n%s", err, out)
	}
}
