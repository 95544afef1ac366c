package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
	"github.com/rondo-rl/rondo/sandbox/internal/registry"
)

// How long the container engine may take.
const (
	engineTime = 20 * time.Second
	pullTime   = 30 * time.Minute
	partTime   = 24 * time.Hour // then what is half there is nobody's any more
)

// HasEngine says why images that BuildImage made cannot be had here; nil when a Docker engine
// answers. It is asked anew after a minute.
func HasEngine(ctx context.Context) error {
	engine.Lock()
	defer engine.Unlock()
	if time.Since(engine.asked) < time.Minute {
		return engine.err
	}
	_, err := docker(ctx, engineTime, "version", "--format", "{{.Server.Version}}")
	if ctx.Err() == nil {
		engine.asked, engine.err = time.Now(), err
	}
	return err
}

var engine struct {
	sync.Mutex
	asked time.Time
	err   error
}

// docker runs the docker command and answers its output.
func docker(ctx context.Context, limit time.Duration, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	command := exec.CommandContext(ctx, "docker", args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, engineError(args[0], err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

func engineError(what string, err error, stderr []byte) error {
	if text := strings.TrimSpace(string(stderr)); text != "" {
		err = fmt.Errorf("%w: %.500s", err, text)
	}
	return fmt.Errorf("docker %s: %w (what no registry has needs a Docker engine and the docker command)", what, err)
}

// validImage keeps a name from being an option of the docker command.
var validImage = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,255}$`)

// OpenImage brings the tree of a container image into a folder below cacheDir, once for each image,
// and answers where it is. A Docker engine that answers has the image, or pulls it. Without one,
// and where the engine's is another one than id, the registry that the name names is asked, with
// the keys of `docker login`. The folder is named by the image's digest and is for reading only. An
// image of another digest than id is refused; "" accepts any. With an id whose tree is there,
// nobody is asked, and Root and ID alone are told.
func OpenImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	return openImage(ctx, name, id, cacheDir, func() (Image, error) {
		if HasEngine(ctx) != nil {
			return registryImage(ctx, name, id, cacheDir)
		}
		image, ids, err := inspect(ctx, name)
		if err != nil {
			if _, err = docker(ctx, pullTime, "pull", "--quiet", name); err == nil {
				image, ids, err = inspect(ctx, name)
			}
		}
		if err != nil {
			return image, err
		}
		if id != "" && !slices.Contains(ids, id) {
			return registryImage(ctx, name, id, cacheDir)
		}
		return export(ctx, image, cmp.Or(id, ids[0]), cacheDir)
	})
}

// OpenBuiltImage is OpenImage for an image that no registry has: one of BuildImage, which is with
// this machine's engine, or nowhere.
func OpenBuiltImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	return openImage(ctx, name, id, cacheDir, func() (Image, error) {
		image, ids, err := inspect(ctx, name)
		if err != nil {
			return image, err
		}
		if id != "" && !slices.Contains(ids, id) {
			return image, fmt.Errorf("it is %s on this machine, and %s was asked for", image.ID, id)
		}
		return export(ctx, image, cmp.Or(id, image.ID), cacheDir)
	})
}

// openImage brings an image whose tree is not there yet. It takes minutes, and all rollouts of its
// tasks want the same one: one brings it, and the others wait.
func openImage(ctx context.Context, name, id, cacheDir string, bring func() (Image, error)) (image Image, err error) {
	defer func() {
		if err != nil {
			image, err = Image{}, fmt.Errorf("container image %s: %w", name, err)
		}
	}()
	if !validImage.MatchString(name) || id != "" && !validID.MatchString(id) {
		return image, fmt.Errorf("%w: not the name of an image, or not a digest", ErrInvalid)
	}
	there := Image{ID: id, Root: imageFolder(cacheDir, id)}
	if id != "" && exists(there.Root) {
		return there, nil
	}
	lock, _ := imageLocks.LoadOrStore(name, make(chan struct{}, 1))
	select {
	case lock.(chan struct{}) <- struct{}{}:
		defer func() { <-lock.(chan struct{}) }()
	case <-ctx.Done():
		return image, ctx.Err()
	}
	if id != "" && exists(there.Root) {
		return there, nil
	}
	return bring()
}

var imageLocks sync.Map // from names to chan struct{}, which holds one thing while one of them is brought

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// registryImage brings an image from the registry that has it.
func registryImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	found, err := registry.Find(ctx, name, id)
	if err != nil {
		return Image{}, err
	}
	if id != "" && !slices.Contains(found.IDs, id) {
		return Image{}, fmt.Errorf("it is %s in its registry, and %s was asked for", found.IDs[0], id)
	}
	image := describe(cmp.Or(id, found.IDs[0]), found.Workdir, found.Env)
	return image, image.lay(cacheDir, func(root *os.Root) error { return found.Unpack(ctx, root) })
}

func imageFolder(cacheDir, id string) string {
	return filepath.Join(cacheDir, "images", strings.TrimPrefix(id, "sha256:"))
}

// inspect reads what an image says of itself, and the digests by which it is known: that of its
// registry first, by which any machine finds it also when its name has moved on.
func inspect(ctx context.Context, name string) (image Image, ids []string, err error) {
	out, err := docker(ctx, engineTime, "image", "inspect", "--format", "{{json .}}", name)
	if err != nil {
		return image, nil, err
	}
	var found struct {
		ID          string   `json:"Id"`
		RepoDigests []string // NAME@DIGEST
		Config      struct {
			Env        []string
			WorkingDir string
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return image, nil, fmt.Errorf("read docker image inspect: %w", err)
	}
	if !validID.MatchString(found.ID) {
		return image, nil, fmt.Errorf("docker image inspect names the image %.100q", found.ID)
	}
	for _, known := range found.RepoDigests {
		repository, id, _ := strings.Cut(known, "@")
		if rest, same := strings.CutPrefix(name, repository); validID.MatchString(id) && same &&
			(rest == "" || strings.ContainsAny(rest[:1], ":@")) {
			ids = append(ids, id)
		}
	}
	return describe(found.ID, found.Config.WorkingDir, found.Config.Env), append(ids, found.ID), nil
}

// describe is an image without its tree. Variables are key=value.
func describe(id, workdir string, variables []string) Image {
	image := Image{ID: id, Workdir: workdir, Env: map[string]string{}}
	for _, variable := range variables {
		key, value, _ := strings.Cut(variable, "=")
		image.Env[key] = value
	}
	return image
}

var validID = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// lay has the image's tree written beside its place and moves it there, so
// that what is there is whole.
func (i *Image) lay(cacheDir string, write func(*os.Root) error) (err error) {
	if i.Root = imageFolder(cacheDir, i.ID); exists(i.Root) {
		return nil
	}
	folder := filepath.Dir(i.Root)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	sweep(folder)
	part, err := os.MkdirTemp(folder, ".part-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	if err := os.Chmod(part, 0o755); err != nil { // another user looks into it from inside
		return err
	}
	root, err := os.OpenRoot(part)
	if err != nil {
		return err
	}
	if err := errors.Join(write(root), root.Close()); err != nil {
		return err
	}
	if err = os.Rename(part, i.Root); exists(i.Root) {
		return nil // by this process or another one
	}
	return err
}

// sweep removes what processes left that were killed while they brought an image.
func sweep(folder string) {
	parts, _ := filepath.Glob(filepath.Join(folder, ".part-*"))
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > partTime {
			_ = os.RemoveAll(part) // the next one tries again
		}
	}
}

// export brings the tree of an image that the engine has, which the caller knows by a digest.
func export(ctx context.Context, image Image, id, cacheDir string) (Image, error) {
	engines := image.ID
	image.ID = id
	return image, image.lay(cacheDir, func(root *os.Root) error { return exportInto(ctx, engines, root) })
}

func exportInto(ctx context.Context, id string, root *os.Root) error {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	out, err := docker(ctx, engineTime, "create", "--pull", "never", "--label", "rondo", id, "true")
	if err != nil {
		return err
	}
	container := strings.TrimSpace(string(out))
	defer docker(context.WithoutCancel(ctx), engineTime, "rm", "--force", container)
	command := exec.CommandContext(ctx, "docker", "export", container)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stream, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return engineError("export", err, nil)
	}
	unpackErr := archive.UnpackImage(ctx, root, stream)
	if unpackErr != nil {
		cancel()
	}
	_, _ = io.Copy(io.Discard, stream)
	err = command.Wait()
	if unpackErr != nil {
		return fmt.Errorf("unpack: %w", unpackErr)
	}
	if err != nil {
		return engineError("export", err, stderr.Bytes())
	}
	return nil
}
