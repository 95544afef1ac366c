package tasks

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// Spec describes a task as a run needs it, but for what is stored: its trees, and its stages with theirs.
func (t *Task) Spec() runfile.TaskSpec {
	spec := runfile.TaskSpec{
		Name: t.Name, Digest: t.Digest, Instruction: t.Instruction, Workdir: t.Workdir, Toolchains: t.Toolchains,
		Env: t.Env, VerifierEnv: t.VerifierEnv, VerifierTimeout: runfile.Duration(cmp.Or(t.VerifierTimeout, verifier.DefaultTimeout)),
		MemoryMB: t.MemoryMB, Protected: t.Protected, Deterministic: t.Deterministic, AgentTimeout: runfile.Duration(t.AgentTimeout),
		CPUs: t.CPUs, Labels: t.Labels, Image: t.Image, ImageID: t.ImageID, VerifierImage: t.VerifierImage, VerifierImageID: t.VerifierImageID, Collect: SpecHooks(t.Collect), Network: t.Network,
	}
	spec.Transcript = t.Transcript
	if t.Separate {
		spec.Verifier = runfile.VerifierSeparate
	}
	return spec
}

// SpecHooks are hooks as a run's configuration has them.
func SpecHooks(hooks []verifier.Hook) (packed []runfile.Hook) {
	for _, hook := range hooks {
		packed = append(packed, runfile.Hook{Command: hook.Command, Timeout: runfile.Duration(hook.Timeout)})
	}
	return packed
}

// Sandboxes makes the specifications of a task's sandboxes: those of its agents, of its tests, and of lint. There is no other maker, so that
// all of them have the same root, toolchains, limits and variables.
type Sandboxes struct {
	task       runfile.TaskSpec
	base       sandbox.Spec      // but for the name and the variables
	toolchains map[string]string // variables of the toolchains
	cacheDir   string
}

// SandboxesOf looks for a task's toolchains and image on this machine. cacheDir is as in sandbox.Toolchain and sandbox.OpenImage, allowInsecure
// as in sandbox.Spec.
func SandboxesOf(ctx context.Context, task runfile.TaskSpec, cacheDir string, allowInsecure bool) (*Sandboxes, error) {
	s := &Sandboxes{task: task, cacheDir: cacheDir, base: sandbox.Spec{
		Workdir: task.Workdir, Limits: sandbox.Limits{MemoryBytes: int64(task.MemoryMB) << 20}, AllowInsecure: allowInsecure,
	}}
	var err error
	if s.base.Mounts, s.toolchains, err = sandbox.Toolchains(ctx, task.Toolchains, cacheDir); err != nil {
		return nil, err
	}
	if task.Image != "" {
		image, err := sandbox.OpenImage(ctx, task.Image, task.ImageID, cacheDir)
		if err != nil {
			return nil, err
		}
		s.base.Root = image.Root
	}
	return s, nil
}

// Env gives the variables of the task's agents, with more over them. Those of the toolchains come last: a task may not change where its
// toolchain is.
func (s *Sandboxes) Env(more map[string]string) map[string]string {
	env := map[string]string{}
	for _, part := range []map[string]string{s.task.Env, more, s.toolchains} {
		maps.Copy(env, part)
	}
	return env
}

// Agent describes the sandbox of an agent. Its workspace is the caller's to fill.
func (s *Sandboxes) Agent(name string) sandbox.Spec {
	spec := s.base
	spec.Name, spec.Env = name, s.Env(nil)
	return spec
}

// Verifier describes how the task's tests run. Snapshot, tests and changes are the caller's to fill in.
func (s *Sandboxes) Verifier(ctx context.Context, name string) (verifier.Spec, error) {
	spec := verifier.Spec{
		Name: name, Workdir: s.base.Workdir, Root: s.base.Root, Mounts: s.base.Mounts, Limits: s.base.Limits, AllowInsecure: s.base.AllowInsecure,
		Protected: s.task.Protected, Timeout: time.Duration(s.task.VerifierTimeout), Env: s.Env(s.task.VerifierEnv),
		Separate: s.task.Verifier == runfile.VerifierSeparate, UnderTestEnv: s.Env(nil),
	}
	if s.task.Transcript {
		spec.Transcript = verifier.NoTranscript // of lint, which has no rollout
	}
	for _, hook := range s.task.Collect {
		spec.Collect = append(spec.Collect, verifier.Hook{Command: hook.Command, Timeout: time.Duration(hook.Timeout)})
	}
	if s.task.VerifierImage == "" {
		return spec, nil
	}
	image, err := sandbox.OpenImage(ctx, s.task.VerifierImage, s.task.VerifierImageID, s.cacheDir)
	spec.TestsRoot = image.Root
	return spec, err
}
