package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/sandbox"
)

// setImage takes over the container image that is to be the task's root file system: where nothing else in the pack is its workspace, or
// [metadata.rondo] image = true asks for it.
func setImage(task *Task, cfg *config, workspace bool) error {
	name := cfg.Environment.DockerImage
	switch {
	case name == "" && cfg.Metadata.Rondo.Image:
		return errors.New("task.toml: metadata.rondo.image: needs environment.docker_image to name the image")
	case name != "" && (cfg.Metadata.Rondo.Image || !workspace):
		task.Image = name
	}
	return nil
}

// OpenImage brings the container image of a task that has one into a folder below cacheDir (see sandbox.OpenImage), and takes from it what
// the task does not say itself: workspace, its path, variables. For tasks without an image it does nothing.
func (t *Task) OpenImage(ctx context.Context, cacheDir string) error {
	if t.Image == "" || t.Root != "" {
		return nil
	}
	image, err := sandbox.OpenImage(ctx, t.Image, "", cacheDir)
	if err != nil {
		return fmt.Errorf("task %s: %w", t.Name, err)
	}
	workdir, snapshot := t.Workdir, t.Snapshot
	if workdir == "" {
		if workdir = image.Workdir; workdir == "" {
			workdir = defaultWorkdir
		}
		if err := checkWorkdir(workdir); err != nil {
			return fmt.Errorf("task %s: container image %s: %w", t.Name, t.Image, err)
		}
	}
	if snapshot == nil {
		inside, err := os.OpenRoot(image.Root) // a link of the image may lead anywhere
		if err != nil {
			return fmt.Errorf("task %s: %w", t.Name, err)
		}
		defer inside.Close()
		folder, err := inside.OpenRoot("." + workdir)
		if err != nil {
			return fmt.Errorf("task %s: container image %s: its workspace %s: %w", t.Name, t.Image, workdir, err)
		}
		snapshot = folder.FS()
	}
	env := maps.Clone(image.Env)
	maps.Copy(env, t.Env)
	t.Root, t.ImageID, t.Workdir, t.Snapshot, t.Env = filepath.Clean(image.Root), image.ID, workdir, snapshot, env
	return nil
}
