package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// Spec describes a task as a run needs it, but for what is stored: its trees, and its stages with
// theirs. It has the disk that all runs have.
func (t *Task) Spec() runfile.TaskSpec {
	spec := runfile.TaskSpec{
		Name: t.Name, Digest: t.Digest, Instruction: t.Instruction, Workdir: t.Workdir, Toolchains: t.Toolchains,
		Env: t.Env, VerifierEnv: t.VerifierEnv, VerifierTimeout: runfile.Duration(cmp.Or(t.VerifierTimeout,
			verifier.DefaultTimeout)),
		MemoryMB: t.MemoryMB, Protected: t.Protected, Deterministic: t.Deterministic,
		AgentTimeout: runfile.Duration(t.AgentTimeout),
		CPUs:         t.CPUs, Labels: t.Labels, Image: t.Image, ImageID: t.ImageID, VerifierImage: t.VerifierImage,
		VerifierImageID: t.VerifierImageID, Collect: SpecHooks(t.Collect), Network: t.Network,
	}
	spec.Transcript, spec.Verifier = t.Transcript, t.Verifier()
	return spec
}

// SpecHooks are hooks as a run's configuration has them.
func SpecHooks(hooks []verifier.Hook) (packed []runfile.Hook) {
	for _, hook := range hooks {
		packed = append(packed, runfile.Hook{Command: hook.Command, Timeout: runfile.Duration(hook.Timeout)})
	}
	return packed
}

// Machine says how sandboxes of tasks are made on this machine.
type Machine struct {
	// AllowInsecure runs them without isolation where the kernel refuses it.
	AllowInsecure bool
	// ToolchainCache is where toolchains keep their warmed caches, and images their trees.
	ToolchainCache string
	// ModuleCache is where modules are unpacked; "" is ToolchainCache.
	ModuleCache string
	// Disk is the folder on whose disk workspaces lie that may be too large for the memory, as in
	// sandbox.Spec; "" has no room for them.
	Disk string
}

// Spec describes a task as Task.Spec does, with the disk that it asks for, or that a copy of its
// snapshot takes, where this machine has disks.
func (m Machine) Spec(t *Task) (runfile.TaskSpec, error) {
	spec := t.Spec()
	size, err := treeBytes(t.Snapshot)
	if err != nil {
		return spec, fmt.Errorf("snapshot: %w", err)
	}
	needs := int(size>>20) + runfile.DefaultDiskMB/2
	switch {
	case m.Disk != "":
		needs = max(needs, t.DiskMB)
		spec.DiskMB = runfile.Limits{Disk: runfile.Size(needs) << 20}.DiskMB(0)
	case needs > runfile.DefaultDiskMB:
		return spec, fmt.Errorf("the snapshot has %d MiB, and sandboxes have %d MiB in memory: name a directory on a disk (--workspace-disk)",
			size>>20, runfile.DefaultDiskMB)
	}
	return spec, nil
}

// treeBytes is how large the files of a tree are together; nil has none.
func treeBytes(tree fs.FS) (total int64, err error) {
	if tree == nil {
		return 0, nil
	}
	return total, fs.WalkDir(tree, ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
}

// Room says why this machine has no workspaces of so many MiB; nil where it has.
func (m Machine) Room(diskMB int) error {
	switch {
	case diskMB <= runfile.DefaultDiskMB:
		return nil
	case m.Disk == "":
		return fmt.Errorf("a disk of %d MiB: this machine keeps workspaces in memory (--workspace-disk)", diskMB)
	}
	if err := sandbox.CheckDisk(m.Disk, int64(diskMB)<<20); err != nil {
		return fmt.Errorf("a disk of %d MiB: %w", diskMB, err)
	}
	return nil
}

// Sandboxes makes the specifications of a task's sandboxes: those of its agents, of its
// tests, and of lint. There is no other maker, so that all of them have the same root,
// toolchains, limits and variables.
type Sandboxes struct {
	task       runfile.TaskSpec
	base       sandbox.Spec      // but for the name and the variables
	toolchains map[string]string // variables of the toolchains
	cacheDir   string
}

// ErrModules says that this machine cannot show a task's modules in sandboxes.
var ErrModules = errors.New("modules cannot be unpacked")

// Sandboxes is SandboxesOf a task that is in no store.
func (m Machine) Sandboxes(ctx context.Context, t *Task) (*Sandboxes, error) {
	spec, err := m.Spec(t)
	if err != nil {
		return nil, err
	}
	if t.Modules == nil {
		return sandboxesOf(ctx, spec, m, nil)
	}
	modules, err := Pack(t.Modules)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	defer modules.Close()
	if spec.Modules.SHA256, err = modules.digest(); err != nil {
		return nil, err
	}
	return sandboxesOf(ctx, spec, m, func(context.Context) (io.ReadCloser, error) { return modules.Open() })
}

// SandboxesOf looks for a task's toolchains and image on this machine, and whether it has room for
// its workspace. Its modules come from the store.
func SandboxesOf(ctx context.Context, task runfile.TaskSpec, m Machine, store storage.Store) (*Sandboxes, error) {
	return sandboxesOf(ctx, task, m, func(ctx context.Context) (io.ReadCloser,
		error) {
		return storage.ReadBlob(ctx, store, task.Modules)
	})
}

func sandboxesOf(ctx context.Context, task runfile.TaskSpec, m Machine, modules sandbox.Fetch) (*Sandboxes, error) {
	if err := m.Room(task.DiskMB); err != nil {
		return nil, err
	}
	s := &Sandboxes{task: task, cacheDir: m.ToolchainCache, base: sandbox.Spec{
		Workdir: task.Workdir, AllowInsecure: m.AllowInsecure,
		Limits: sandbox.Limits{MemoryBytes: int64(task.MemoryMB) << 20, DiskBytes: int64(task.DiskMB) << 20},
	}}
	var err error
	if task.DiskMB > 0 {
		if s.base.Disk, err = filepath.Abs(m.Disk); err != nil {
			return nil, err
		}
	}
	if s.base.Mounts, s.toolchains, err = sandbox.Toolchains(ctx, task.Toolchains, m.ToolchainCache); err != nil {
		return nil, err
	}
	if task.Modules.SHA256 != "" {
		mounts, env, err := modulesOf(ctx, task, cmp.Or(m.ModuleCache, m.ToolchainCache), modules)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w: %w", task.Name, ErrModules, err)
		}
		s.base.Mounts = append(s.base.Mounts, mounts...)
		maps.Copy(s.toolchains, env)
		// Without isolation a mount in the workspace is a copy of it, and so
		// a part of the workspace.
		s.base.AllowInsecure = s.base.AllowInsecure && !hasNodePackages(task)
	}
	if task.Image != "" {
		image, err := openImage(ctx, task.Image, task.ImageID, m.ToolchainCache)
		if err != nil {
			return nil, err
		}
		s.base.Root = image.Root
	}
	return s, nil
}

// hasNodePackages reports whether a task's modules are packages of npm:
// where it has node and no Go.
func hasNodePackages(task runfile.TaskSpec) bool {
	return slices.Contains(task.Toolchains, "node") && !slices.Contains(task.Toolchains, "go")
}

// modulesOf shows a task's modules.
func modulesOf(ctx context.Context, task runfile.TaskSpec, cacheDir string,
	modules sandbox.Fetch) ([]sandbox.Mount, map[string]string, error) {
	if hasNodePackages(task) {
		mounts, err := sandbox.NodePackages(ctx, cacheDir, task.Modules.SHA256, task.Workdir, modules)
		return mounts, nil, err
	}
	mount, env, err := sandbox.GoModules(ctx, cacheDir, task.Modules.SHA256, modules)
	return []sandbox.Mount{mount}, env, err
}

// Env gives the variables of the task's agents, with more over them. Those of the toolchains come
// last: a task may not change where its toolchain is.
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

// Verifier describes how the task's tests run. Snapshot, tests and changes are
// the caller's to fill in.
func (s *Sandboxes) Verifier(ctx context.Context, name string) (verifier.Spec, error) {
	spec := verifier.Spec{
		Name: name, Workdir: s.base.Workdir, Root: s.base.Root, Mounts: s.base.Mounts, Limits: s.base.Limits,
		Disk: s.base.Disk, AllowInsecure: s.base.AllowInsecure,
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
	image, err := openImage(ctx, s.task.VerifierImage, s.task.VerifierImageID, s.cacheDir)
	spec.TestsRoot = image.Root
	return spec, err
}
