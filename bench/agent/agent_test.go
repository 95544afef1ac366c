package agent

import (
	"os"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// TestMain: in sandboxes this program is the null agent.
func TestMain(m *testing.M) {
	if IsNull() {
		os.Exit(MainNull())
	}
	os.Exit(m.Run())
}

// TestRun: loop and agents make the same rollouts, an agent that is lost has its turns from the
// log, and each way to the model has its figures.
func TestRun(t *testing.T) {
	sandboxtest.Require(t)
	o := Options{Rollouts: 4, Turns: 4, Tokens: 16, AtOnce: 2, Pairs: 1, Dir: t.TempDir()}
	lines := 0
	r, err := Run(t.Context(), o, func(line string) { lines++; t.Log(line) }, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if lines != 1 || r.Loop.RolloutsPerSecond <= 0 || r.Agent.RolloutsPerSecond <= 0 {
		t.Errorf("%d lines, %+v", lines, r)
	}
	// The agents' own time is in no figure but its own: a process of Go
	// takes a millisecond at least.
	if r.Loop.CPU < 1 || r.Agent.CPU < 1 || r.Loop.Own != 0 || r.Agent.Own < 1 || r.Ratio != r.Agent.CPU/r.Loop.CPU {
		t.Errorf("loop %+v, agents %+v: ratio %g", r.Loop, r.Agent, r.Ratio)
	}
	if r.RestartSeconds <= 0 || r.Recorded != 100 {
		t.Errorf("started anew: %g s a turn of %d", r.RestartSeconds, r.Recorded)
	}
	for what, b := range map[string]Beside{"whole": r.Whole, "first": r.First} {
		if b.Gateway.Count != 4*3 || b.Proxy.Count == 0 || b.PerSecond <= 0 ||
			b.Gateway.P50 > b.Gateway.P99 || b.Gateway.P99 <= 0 ||
			b.Proxy.P50 > b.Proxy.P99 || b.Proxy.P99 <= 0 {
			t.Errorf("%s: %+v", what, b)
		}
	}
	if r.AddedP50 != r.Whole.Gateway.P50-r.Whole.Proxy.P50 || r.FirstP99 != r.First.Gateway.P99-r.First.Proxy.P99 {
		t.Errorf("added: %+v", r)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no group": {Rollouts: 3}, "one turn": {Turns: 1}, "few tokens": {Tokens: 8}, "none at once": {AtOnce: -1},
		"no pairs": {Pairs: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Run(t.Context(), o, func(string) {}, func(string) {}); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}
