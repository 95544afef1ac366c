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
)

// HasEngine says why images that BuildImage made cannot be had here; nil when a Docker engine answers. It is asked anew after a minute.
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

// OpenImage brings the tree of a container image into a folder below cacheDir, once for each image, and answers where it is. A Docker
// engine that answers has the image, or pulls it. Without one, and where the engine's is another one than id, the registry that the name
// names is asked, with the keys of `docker login`. The folder is named by the image's digest and is for reading only. An image of another
// digest than id is refused; "" accepts any. With an id whose tree is there, nobody is asked, and Root and ID alone are told.
func OpenImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	return openImage(name, id, cacheDir, func() (Image, error) {
		if HasEngine(ctx) != nil {
			return registryImage(ctx, name, id, cacheDir)
		}
		image, err := inspect(ctx, name)
		if err != nil {
			if _, err = docker(ctx, pullTime, "pull", "--quiet", name); err == nil {
				image, err = inspect(ctx, name)
			}
		}
		if err == nil && id != "" && image.ID != id {
			return registryImage(ctx, name, id, cacheDir)
		}
		if err != nil {
			return image, err
		}
		return image, export(ctx, &image, cacheDir)
	})
}

// OpenBuiltImage is OpenImage for an image that no registry has: one of BuildImage, which is with this machine's engine, or nowhere.
func OpenBuiltImage(ctx context.Context, name, id, cacheDir string) (Image, error) {
	return openImage(name, id, cacheDir, func() (Image, error) {
		image, err := inspect(ctx, name)
		if err != nil {
			return image, err
		}
		if id != "" && image.ID != id {
			return image, fmt.Errorf("it is %s on this machine, and %s was asked for", image.ID, id)
		}
		return image, export(ctx, &image, cacheDir)
	})
}

// openImage brings an image whose tree is not there yet.
func openImage(name, id, cacheDir string, bring func() (Image, error)) (image Image, err error) {
	defer lockImage(name)() // an image takes a minute, and all rollouts of its tasks want the same one
	switch root := imageFolder(cacheDir, id); {
	case !validImage.MatchString(name) || id != "" && !validID.MatchString(id):
		err = fmt.Errorf("%w: not the name of an image, or not a digest", ErrInvalid)
	case id != "" && exists(root):
		image = Image{ID: id, Root: root}
	default:
		image, err = bring()
	}
	if err != nil {
		return Image{}, fmt.Errorf("container image %s: %w", name, err)
	}
	return image, nil
}

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

// lockImage keeps others of this process from bringing an image of the same name, until it is unlocked.
func lockImage(name string) (unlock func()) {
	lock, _ := imageLocks.LoadOrStore(name, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

var imageLocks sync.Map // from names to *sync.Mutex

func imageFolder(cacheDir, id string) string {
	return filepath.Join(cacheDir, "images", strings.TrimPrefix(id, "sha256:"))
}

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
	return describe(found.ID, found.Config.WorkingDir, found.Config.Env), nil
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

// lay has the image's tree written beside its place and moves it there, so that what is there is whole.
func (i *Image) lay(cacheDir string, write func(*os.Root) error) (err error) {
	if i.Root = imageFolder(cacheDir, i.ID); exists(i.Root) {
		return nil
	}
	folder := filepath.Dir(i.Root)
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

// export brings the tree of what the engine has under a digest.
func export(ctx context.Context, image *Image, cacheDir string) error {
	return image.lay(cacheDir, func(root *os.Root) error { return exportInto(ctx, image.ID, root) })
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
	unpackErr := archive.UnpackImage(root, stream)
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
