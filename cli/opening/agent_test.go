package opening

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/storage/dir"
)

// TestTakeAgent: a run file names a layer as people do, and the run has its digest and its profile.
// The run file's own entries replace those of the profile.
func TestTakeAgent(t *testing.T) {
	sandboxtest.Require(t)
	store, err := dir.Open(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "run.sh"), []byte("#!/bin/sh\necho 1.2.3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	profile := agents.Profile{
		Name: "mine", Install: agents.Install{Files: folder, Version: "1.2.3"},
		Command: []string{agents.Folder + "/run.sh", agents.Instruction},
		Env:     map[string]string{"A": "profile", "B": agents.BaseURL},
		Files:   map[string]string{".mine/settings": "{}"},
	}
	built, err := agents.Builder{Store: store, Scratch: t.TempDir()}.Build(t.Context(), profile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "mine@1.2.3", built.Digest, built.Digest[:12]} {
		f := RunFile{RunConfig: runfile.RunConfig{Agent: &runfile.Agent{Layer: name,
			Env: map[string]string{"A": "own"}}}}
		if err := f.TakeAgent(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		if a := f.Agent; a.Layer != built.Digest || !slices.Equal(a.Command, profile.Command) ||
			!maps.Equal(a.Files, profile.Files) ||
			!maps.Equal(a.Env, map[string]string{"A": "own", "B": agents.BaseURL}) {
			t.Errorf("%s: %+v", name, f.Agent)
		}
	}
	own := RunFile{RunConfig: runfile.RunConfig{Agent: &runfile.Agent{Layer: "mine", Command: []string{"sh"}}}}
	if err := own.TakeAgent(t.Context(), store); err != nil || own.Agent.Command[0] != "sh" {
		t.Errorf("a command of its own: %+v, %v", own.Agent, err)
	}
	unknown := RunFile{RunConfig: runfile.RunConfig{Agent: &runfile.Agent{Layer: "codex"}}}
	if err := unknown.TakeAgent(t.Context(), store); err == nil ||
		!strings.Contains(err.Error(), "rondo agents build") {
		t.Errorf("a layer that was never built: %v", err)
	}
}
