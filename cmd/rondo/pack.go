package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

// loadTasks reads a pack from a directory, or the sample pack.
func loadTasks(dir string) ([]*tasks.Task, error) {
	if dir == "" {
		return tasks.LoadPack(tasks.Sample())
	}
	return tasks.LoadDir(dir)
}

// packTasks puts the tasks' files into the store and describes them as a run needs them.
func packTasks(ctx context.Context, store storage.Store, list []*tasks.Task) ([]events.TaskSpec, error) {
	if len(list) == 0 {
		return nil, errors.New("the task pack is empty")
	}
	specs := make([]events.TaskSpec, 0, len(list))
	for _, t := range list {
		if err := t.OpenImage(ctx, defaultSettings().toolchainCache); err != nil {
			return nil, err
		}
		spec := events.TaskSpec{
			Name: t.Name, Digest: t.Digest, Instruction: t.Instruction, Workdir: t.Workdir, Toolchains: t.Toolchains,
			Env: t.Env, VerifierEnv: t.VerifierEnv, VerifierTimeout: events.Duration(t.VerifierTimeout), MemoryMB: t.MemoryMB, Protected: t.Protected, Deterministic: t.Deterministic,
			AgentTimeout: events.Duration(t.AgentTimeout), CPUs: t.CPUs, Labels: t.Labels, Image: t.Image, ImageID: t.ImageID,
		}
		spec.Collect = packHooks(t.Collect)
		if spec.VerifierTimeout == 0 {
			spec.VerifierTimeout = events.Duration(10 * time.Minute)
		}
		var err error
		if spec.Snapshot, err = packTree(ctx, store, t.Snapshot); err != nil {
			return nil, fmt.Errorf("pack the snapshot of task %s: %w", t.Name, err)
		}
		if spec.Tests, err = packTree(ctx, store, t.Tests); err != nil {
			return nil, fmt.Errorf("pack the tests of task %s: %w", t.Name, err)
		}
		if err := packSteps(ctx, store, t, &spec); err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

func packSteps(ctx context.Context, store storage.Store, t *tasks.Task, spec *events.TaskSpec) error {
	spec.RewardStrategy = t.RewardStrategy
	for _, s := range t.Steps {
		step := events.StepSpec{
			Name: s.Name, Instruction: s.Instruction, AgentTimeout: events.Duration(s.AgentTimeout), VerifierTimeout: events.Duration(s.VerifierTimeout),
			VerifierEnv: s.VerifierEnv, MinReward: s.MinReward, Collect: packHooks(s.Collect),
		}
		var err error
		if step.Tests, err = packTree(ctx, store, s.Tests); err != nil {
			return fmt.Errorf("pack the tests of step %s of task %s: %w", s.Name, t.Name, err)
		}
		if s.Files != nil {
			files, err := packTree(ctx, store, s.Files)
			if err != nil {
				return fmt.Errorf("pack the files of step %s of task %s: %w", s.Name, t.Name, err)
			}
			step.Files = &files
		}
		spec.Steps = append(spec.Steps, step)
	}
	return nil
}

// packTree stores a tree as an archive.
func packTree(ctx context.Context, store storage.Store, tree fs.FS) (storage.Ref, error) {
	data, err := sandbox.Pack(tree)
	if err != nil {
		return storage.Ref{}, err
	}
	return storage.PutBlob(ctx, store, data)
}

func packHooks(hooks []verifier.Hook) (packed []events.Hook) {
	for _, hook := range hooks {
		packed = append(packed, events.Hook{Command: hook.Command, Timeout: events.Duration(hook.Timeout)})
	}
	return packed
}
