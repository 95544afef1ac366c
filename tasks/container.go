package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/rondo-rl/rondo/sandbox"
)

// setImage takes over the container image that is to be the task's root file system: where nothing
// else in the pack is its workspace, or [metadata.rondo] image = true asks for it.
func setImage(task *Task, cfg *config, workspace bool) error {
	name := cfg.Environment.DockerImage
	switch {
	case name == "" && cfg.Metadata.Rondo.Image:
		return errors.New("task.toml: metadata.rondo.image: needs environment.docker_image to name the image")
	case name != "" && (cfg.Metadata.Rondo.Image || !workspace):
		task.Image, task.config = name, cfg
	}
	return nil
}

// OpenImage brings the container images of a task that has some into folders below cacheDir (see
// sandbox.OpenImage), and takes from them what the task does not say itself: workspace, its path,
// variables. For tasks without an image it does nothing.
func (t *Task) OpenImage(ctx context.Context, cacheDir string) error {
	if err := t.openRoot(ctx, cacheDir); err != nil {
		return err
	}
	return t.openTestsImage(ctx, cacheDir)
}

// openRoot opens the image whose tree is the agent's root file system.
func (t *Task) openRoot(ctx context.Context, cacheDir string) error {
	if t.Image == "" || t.Root != "" {
		return nil
	}
	image, err := t.open(ctx, t.Image, cacheDir)
	if err != nil {
		return err
	}
	if err := t.takeFrom(image); err != nil {
		return fmt.Errorf("task %s: container image %s: %w", t.Name, t.Image, err)
	}
	env := maps.Clone(image.Env)
	maps.Copy(env, t.Env)
	t.Root, t.ImageID, t.Env = image.Root, image.ID, env
	return nil
}

// takeFrom finds the workspace in the image's tree, as far as the task does not have one.
func (t *Task) takeFrom(image sandbox.Image) error {
	workdir := cmp.Or(t.Workdir, image.Workdir, defaultWorkdir)
	if err := checkWorkdir(workdir); err != nil {
		return err
	}
	if err := checkArtifacts("artifacts", t.config.Artifacts, workdir, t.warn); err != nil {
		return err
	}
	if t.Snapshot == nil {
		// a link of the image may lead anywhere; the snapshot goes on reading from it
		inside, err := os.OpenRoot(image.Root)
		if err != nil {
			return err
		}
		found, err := scan(inside.FS(), workdir[1:])
		if err != nil {
			return fmt.Errorf("its workspace %s: %w", workdir, err)
		}
		if t.Snapshot, err = found.tree(workdir); err != nil {
			return err
		}
		if err := errors.Join(scrubHistory(t, t.config.Metadata.Rondo.Repository), t.layFiles()); err != nil {
			return err
		}
	}
	t.Workdir = workdir
	return nil
}
