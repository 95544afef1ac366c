package opening

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/demo/packs"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/replay"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

// DefaultPack is the pack of every command that is told none: the one that the demo trains on.
const DefaultPack = "small"

// LoadTasks reads a pack from a directory, or the default pack.
func LoadTasks(dir string) ([]*tasks.Task, error) {
	if dir == "" {
		return tasks.LoadPack(packs.Small())
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("task pack %s: no such folder. Name a folder of task folders: "+
			"tasks in a run file is relative to the file; `rondo tasks init NAME` writes a task to begin with", dir)
	}
	return tasks.LoadDir(dir)
}

// PackTasks puts the tasks' files into the store and describes them as a run
// with such limits needs them.
func PackTasks(ctx context.Context, store storage.Store, list []*tasks.Task,
	limits runfile.Limits) ([]runfile.TaskSpec, error) {
	if len(list) == 0 {
		return nil, errors.New("the task pack is empty")
	}
	specs := make([]runfile.TaskSpec, 0, len(list))
	for _, t := range list {
		if err := t.OpenImage(ctx, service.DefaultSettings().ToolchainCache); err != nil {
			return nil, err
		}
		spec := t.Spec()
		spec.DiskMB = limits.DiskMB(t.DiskMB)
		var err error
		if spec.Snapshot, err = packTree(ctx, store, t.Snapshot); err != nil {
			return nil, fmt.Errorf("pack the snapshot of task %s: %w", t.Name, err)
		}
		if spec.Tests, err = packTree(ctx, store, t.Tests); err != nil {
			return nil, fmt.Errorf("pack the tests of task %s: %w", t.Name, err)
		}
		if t.Modules != nil {
			if spec.Modules, err = packTree(ctx, store, t.Modules); err != nil {
				return nil, fmt.Errorf("pack the modules of task %s: %w", t.Name, err)
			}
		}
		if err := packStages(ctx, store, t, &spec); err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

func packStages(ctx context.Context, store storage.Store, t *tasks.Task, spec *runfile.TaskSpec) error {
	spec.RewardStrategy = t.RewardStrategy
	for _, s := range t.Stages {
		stage := runfile.StepSpec{
			Name: s.Name, Instruction: s.Instruction, AgentTimeout: runfile.Duration(s.AgentTimeout),
			VerifierTimeout: runfile.Duration(s.VerifierTimeout),
			VerifierEnv:     s.VerifierEnv, MinReward: s.MinReward, Collect: tasks.SpecHooks(s.Collect),
		}
		var err error
		if stage.Tests, err = packTree(ctx, store, s.Tests); err != nil {
			return fmt.Errorf("pack the tests of stage %s of task %s: %w", s.Name, t.Name, err)
		}
		if s.Files != nil {
			files, err := packTree(ctx, store, s.Files)
			if err != nil {
				return fmt.Errorf("pack the files of stage %s of task %s: %w", s.Name, t.Name, err)
			}
			stage.Files = &files
		}
		spec.Steps = append(spec.Steps, stage)
	}
	return nil
}

// packTree stores a tree as an archive.
func packTree(ctx context.Context, store storage.Store, tree fs.FS) (ref storage.Ref, err error) {
	archive, err := tasks.Pack(tree)
	if err != nil {
		return ref, err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	size, err := archive.Size()
	if err != nil {
		return ref, err
	}
	return storage.PutBlobFrom(ctx, store, archive, size)
}

// WithTests gives a run's tasks the tests of the pack in a folder, as replay.WithTests does.
func WithTests(ctx context.Context, store storage.Store, cfg runfile.RunConfig, dir string,
	note func(format string, args ...any)) (runfile.RunConfig, error) {
	list, err := LoadTasks(dir)
	if err != nil {
		return cfg, err
	}
	pack, err := PackTasks(ctx, store, list, cfg.Limits)
	if err != nil {
		return cfg, err
	}
	return replay.WithTests(cfg, pack, dir, note)
}
