package tasks_test

import (
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tasks"
)

// TestSandboxesOfATaskAreAlike: agents, tests and the code under test get the same toolchain,
// whatever the task says of its folder.
func TestSandboxesOfATaskAreAlike(t *testing.T) {
	cache := t.TempDir()
	mounts, chain, err := sandbox.Toolchains(t.Context(), []string{"go"}, cache)
	if err != nil {
		t.Fatal(err)
	}
	task := runfile.TaskSpec{
		Workdir: "/work", Toolchains: []string{"go"}, MemoryMB: 64, Verifier: runfile.VerifierSeparate,
		Protected:   []string{"go.mod"},
		Env:         map[string]string{"GOROOT": "/evil", "A": "task", "B": "task"},
		VerifierEnv: map[string]string{"PATH": "/evil", "B": "tests"},
		Collect:     []runfile.Hook{{Command: "make report"}},
	}
	boxes, err := tasks.SandboxesOf(t.Context(), task, tasks.Machine{ToolchainCache: cache, AllowInsecure: true}, nil)
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
		"agent": {agent.Env, want("task")}, "tests": {tests.Env, want("tests")},
		"code under test": {tests.UnderTestEnv, want("task")},
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
	if agent.Workdir != "/work" || agent.Workdir != tests.Workdir || agent.Limits != tests.Limits ||
		agent.Limits.MemoryBytes != 64<<20 || !agent.AllowInsecure || !tests.AllowInsecure {
		t.Errorf("agent %+v and tests %+v differ", agent, tests)
	}
	if !tests.Separate || len(tests.Collect) != 1 || tests.Collect[0].Command != "make report" ||
		tests.Protected[0] != "go.mod" {
		t.Errorf("the tests lack what the task says of them: %+v", tests)
	}
}

// TestModulesOfATask: a task's modules are in all of its sandboxes, whether they come from its
// folder or from a store, and its toolchain finds them.
func TestModulesOfATask(t *testing.T) {
	sandboxtest.Require(t)
	proxy, cache := t.TempDir(), t.TempDir()
	sandboxtest.Module(t, proxy, "example.test/pad", "v1.0.0", map[string]string{"go.mod": "module example.test/pad\n"})
	task := &tasks.Task{Name: "a", Workdir: "/work", Tests: os.DirFS(t.TempDir()), Modules: os.DirFS(proxy)}
	machine := tasks.Machine{ToolchainCache: cache}
	boxes, err := machine.Sandboxes(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := tasks.Pack(task.Modules)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	size, err := archive.Size()
	if err != nil {
		t.Fatal(err)
	}
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := task.Spec()
	if spec.Modules, err = storage.PutBlobFrom(t.Context(), store, archive, size); err != nil {
		t.Fatal(err)
	}
	stored, err := tasks.SandboxesOf(t.Context(), spec, machine, store)
	if err != nil {
		t.Fatal(err)
	}
	agent, verifier := boxes.Agent("a"), stored.Agent("a")
	if len(agent.Mounts) != 1 || !slices.Equal(agent.Mounts, verifier.Mounts) ||
		agent.Env["GOMODCACHE"] != agent.Mounts[0].Target || agent.Mounts[0].Overlay {
		t.Errorf("%+v, %+v, %v", agent.Mounts, verifier.Mounts, agent.Env)
	}
	tests, err := stored.Verifier(t.Context(), "a")
	if err != nil || !slices.Equal(tests.Mounts, agent.Mounts) || tests.Env["GOMODCACHE"] != agent.Env["GOMODCACHE"] {
		t.Errorf("%+v, %v", tests, err)
	}
	if spec.Modules.Key = "blobs/gone"; os.RemoveAll(cache) != nil {
		t.Fatal("the cache stays")
	}
	if _, err := tasks.SandboxesOf(t.Context(), spec, machine, store); !errors.Is(err, tasks.ErrModules) ||
		fault.ClassOf(err) != "" {
		t.Errorf("modules that are gone: %v", err)
	}
}
