package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
)

// How long the container engine may take.
const (
	engineTime = 20 * time.Second
	pullTime   = 30 * time.Minute
)

// HasImages says why container images cannot be had here; nil when a Docker engine answers. It is asked anew after a minute.
func HasImages(ctx context.Context) error {
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
	return fmt.Errorf("docker %s: %w (container images need a Docker engine and the docker command)", what, err)
}

// validImage keeps a name from being an option of the docker command.
var validImage = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,255}$`)

// OpenImage brings the tree of a container image into a folder below cacheDir, once for each image, and answers where it is. What is
// not on this machine is pulled. The folder is named by the image's digest and is for reading only. An image of another digest than id is
// refused; "" accepts any. With an id whose tree is there, no engine is asked, and Root and ID alone are told.
func OpenImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	image, err := openImage(ctx, name, id, cacheDir)
	if err != nil {
		return Image{}, fmt.Errorf("container image %s: %w", name, err)
	}
	return image, nil
}

func openImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	if !validImage.MatchString(name) || id != "" && !validID.MatchString(id) {
		return Image{}, fmt.Errorf("%w: not the name of an image, or not a digest", ErrInvalid)
	}
	if root := imageFolder(cacheDir, id); id != "" {
		if _, err := os.Stat(root); err == nil {
			return Image{ID: id, Root: root}, nil
		}
	}
	image, err := inspect(ctx, name)
	if err != nil && strings.HasPrefix(name, BuiltImages) {
		return image, fmt.Errorf("it is built by `rondo tasks build` on a machine with a container engine, and pulled from nowhere: %w", err)
	}
	if err != nil {
		if _, pullErr := docker(ctx, pullTime, "pull", "--quiet", name); pullErr != nil {
			return image, pullErr
		}
		if image, err = inspect(ctx, name); err != nil {
			return image, err
		}
	}
	if id != "" && image.ID != id {
		return image, fmt.Errorf("it is %s on this machine, and %s was asked for", image.ID, id)
	}
	image.Root = imageFolder(cacheDir, image.ID)
	unpacking.Lock() // an image takes a minute, and all rollouts of its tasks want the same one
	defer unpacking.Unlock()
	if _, err := os.Stat(image.Root); err == nil {
		return image, nil
	}
	return image, export(ctx, image)
}

func imageFolder(cacheDir, id string) string {
	return filepath.Join(cacheDir, "images", strings.TrimPrefix(id, "sha256:"))
}

// unpacking is held while an image is exported.
var unpacking sync.Mutex

// inspect reads what an image says of itself.
func inspect(ctx context.Context, name string) (Image, error) {
	out, err := docker(ctx, engineTime, "image", "inspect", "--format", "{{json .}}", name)
	if err != nil {
		return Image{}, err
	}
	var found struct {
		ID     string `json:"Id"`
		Config struct {
			Env        []string
			WorkingDir string
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return Image{}, fmt.Errorf("read docker image inspect: %w", err)
	}
	if !validID.MatchString(found.ID) {
		return Image{}, fmt.Errorf("docker image inspect names the image %.100q", found.ID)
	}
	image := Image{ID: found.ID, Workdir: found.Config.WorkingDir, Env: map[string]string{}}
	for _, variable := range found.Config.Env {
		key, value, _ := strings.Cut(variable, "=")
		image.Env[key] = value
	}
	return image, nil
}

var validID = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// export writes the image's tree beside its place and moves it there, so that what is there is whole.
func export(ctx context.Context, image Image) (err error) {
	folder := filepath.Dir(image.Root)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(folder, ".part-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	if err := os.Chmod(part, 0o755); err != nil { // another user looks into it from inside
		return err
	}
	id, err := docker(ctx, engineTime, "create", "--pull", "never", "--label", "rondo", image.ID, "true")
	if err != nil {
		return err
	}
	container := strings.TrimSpace(string(id))
	defer docker(context.WithoutCancel(ctx), engineTime, "rm", "--force", container)
	if err := exportInto(ctx, container, part); err != nil {
		return err
	}
	err = os.Rename(part, image.Root)
	if _, there := os.Stat(image.Root); there == nil {
		return nil // by this process or another one
	}
	return err
}

func exportInto(ctx context.Context, container, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	command := exec.CommandContext(ctx, "docker", "export", container)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return engineError("export", err, nil)
	}
	unpackErr := archive.UnpackImage(root, out)
	if unpackErr != nil {
		cancel()
	}
	_, _ = io.Copy(io.Discard, out)
	err = command.Wait()
	if unpackErr != nil {
		return fmt.Errorf("unpack: %w", unpackErr)
	}
	if err != nil {
		return engineError("export", err, stderr.Bytes())
	}
	return nil
}
