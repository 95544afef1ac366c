package tasks_test

import (
	"maps"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks"
)

// TestSandboxesOfATaskAreAlike: agents, tests and the code under test get the same toolchain, whatever the task says of its folder.
func TestSandboxesOfATaskAreAlike(t *testing.T) {
	cache := t.TempDir()
	mounts, chain, err := sandbox.Toolchains(t.Context(), []string{"go"}, cache)
	if err != nil {
		t.Fatal(err)
	}
	task := runfile.TaskSpec{
		Workdir: "/work", Toolchains: []string{"go"}, MemoryMB: 64, Verifier: runfile.VerifierSeparate, Protected: []string{"go.mod"},
		Env:         map[string]string{"GOROOT": "/evil", "A": "task", "B": "task"},
		VerifierEnv: map[string]string{"PATH": "/evil", "B": "tests"},
		Collect:     []runfile.Hook{{Command: "make report"}},
	}
	boxes, err := tasks.SandboxesOf(t.Context(), task, tasks.Machine{ToolchainCache: cache, AllowInsecure: true})
	if err != nil {
		t.Fatal(err)
	}
	want := func(b string) map[string]string {
		env := map[string]string{"GOROOT": "/evil", "A": "task", "B": b}
		if b == "tests" {
			env["PATH"] = "/evil"
		}
		maps.Copy(env, chain)
		return env
	}
	agent := boxes.Agent("g000001-0")
	tests, err := boxes.Verifier(t.Context(), "g000001-0")
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][2]map[string]string{
		"agent": {agent.Env, want("task")}, "tests": {tests.Env, want("tests")}, "code under test": {tests.UnderTestEnv, want("task")},
	} {
		t.Run(name, func(t *testing.T) {
			if !maps.Equal(got[0], got[1]) {
				t.Errorf("the variables are %v, want %v", got[0], got[1])
			}
		})
	}
	if len(agent.Mounts) != len(mounts) || len(tests.Mounts) != len(mounts) {
		t.Errorf("%d and %d mounts, want %d", len(agent.Mounts), len(tests.Mounts), len(mounts))
	}
	if agent.Workdir != "/work" || agent.Workdir != tests.Workdir || agent.Limits != tests.Limits || agent.Limits.MemoryBytes != 64<<20 || !agent.AllowInsecure || !tests.AllowInsecure {
		t.Errorf("agent %+v and tests %+v differ", agent, tests)
	}
	if !tests.Separate || len(tests.Collect) != 1 || tests.Collect[0].Command != "make report" || tests.Protected[0] != "go.mod" {
		t.Errorf("the tests lack what the task says of them: %+v", tests)
	}
}
