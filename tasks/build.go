package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/tasks/dockerfile"
)

// Build is a container image that a task needs and that its files describe: the operator's engine
// makes it once (see Make), and sandboxes have its tree as their root.
type Build struct {
	Image string // its name, which follows from the files alone
	Field string // the file that asks for it
	Why   string // what of it takes a container engine

	dockerfile string // its name in context
	context    fs.FS
}

// Make builds the image with this machine's Docker engine, and answers false where it
// is already there. What the task's files run then has the network and the rights that
// the engine gives to builds.
func (b Build) Make(ctx context.Context) (bool, error) {
	made, err := sandbox.BuildImage(ctx, b.Image, b.dockerfile, b.context)
	if err != nil {
		return false, fmt.Errorf("%s: %w", b.Field, err)
	}
	return made, nil
}

// addBuild gives the task an image that is made of a folder.
func (t *Task) addBuild(field string, why error, dockerfile string, folder *node) (string, error) {
	label, _, _ := strings.Cut(field, "/")
	files, err := folder.tree(label)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	writePart(sum, "rondo image 1")
	writePart(sum, dockerfile)
	if err := digestTree(sum, files); err != nil {
		return "", fmt.Errorf("digest of %s: %w", label, err)
	}
	b := Build{Image: runfile.BuiltImages + hex.EncodeToString(sum.Sum(nil)), Field: field, Why: why.Error(),
		dockerfile: dockerfile, context: files}
	t.Builds = append(t.Builds, b)
	return b.Image, nil
}

// composeFiles are the names under which an environment of several containers is described.
var composeFiles = []string{"docker-compose.yaml", "docker-compose.yml", "compose.yaml"}

// refuseCompose refuses an environment of several containers.
func refuseCompose(environment *node) error {
	for _, name := range composeFiles {
		if environment.child(name) != nil {
			return unsupported("environment/"+name, "compose files are not supported: a task has one sandbox; %s",
				prepare)
		}
	}
	return nil
}

// setBuilt makes the image of environment/Dockerfile the task's root file system, or the one that
// Harbor would pull instead. why says what copying files cannot do.
func setBuilt(task *Task, folder *node, cfg *config, why error) error {
	environment := folder.child("environment")
	if err := refuseCompose(environment); err != nil {
		return err
	}
	if dir := cfg.Environment.Workdir; dir != "" {
		if err := checkWorkdir(dir); err != nil {
			return fmt.Errorf("task.toml: environment.%w", err)
		}
	}
	task.config, task.Workdir, task.Image = cfg, cfg.Environment.Workdir, cfg.Environment.DockerImage
	if task.Image != "" {
		return nil
	}
	var err error
	task.Image, err = task.addBuild("environment/Dockerfile", why, "Dockerfile", environment)
	return err
}

// openImage brings an image from where those of its name are.
func openImage(ctx context.Context, name, id, cacheDir string) (sandbox.Image, error) {
	if !runfile.IsBuilt(name) {
		return sandbox.OpenImage(ctx, name, id, cacheDir)
	}
	image, err := sandbox.OpenBuiltImage(ctx, name, id, cacheDir)
	if err != nil {
		err = fmt.Errorf("`rondo tasks build` makes it on a machine with a container engine, and no registry has it: %w", err)
	}
	return image, err
}

// open brings an image of the task to this machine's cache.
func (t *Task) open(ctx context.Context, name, cacheDir string) (sandbox.Image, error) {
	image, err := openImage(ctx, name, "", cacheDir)
	if err == nil {
		return image, nil
	}
	refused := unsupported("environment.docker_image", "%v", err)
	if i := slices.IndexFunc(t.Builds, func(b Build) bool { return b.Image == name }); i >= 0 {
		refused = unsupported(t.Builds[i].Field, "%s; %v", t.Builds[i].Why, err)
	}
	return image, fmt.Errorf("task %s: %w", t.Name, refused)
}

// openTestsImage brings the image of the tests, if they have one: its variables are the tests' own.
func (t *Task) openTestsImage(ctx context.Context, cacheDir string) error {
	if t.VerifierImage == "" || t.VerifierImageID != "" {
		return nil
	}
	image, err := t.open(ctx, t.VerifierImage, cacheDir)
	if err != nil {
		return err
	}
	env := maps.Clone(image.Env)
	maps.Copy(env, t.VerifierEnv)
	t.VerifierImageID, t.VerifierEnv = image.ID, env
	return nil
}

// bareImages are public images with a system and a language and nothing in a workspace. A task
// that builds on one and copies no files begins with an empty workspace, for which this
// machine's system will do.
var bareImages = []string{
	"almalinux", "alpine", "bash", "buildpack-deps", "busybox", "debian", "eclipse-temurin", "fedora", "gcc", "golang",
	"node", "openjdk", "perl", "php", "python", "rockylinux", "ruby",
	"rust", "ubuntu",
}

// bare: the image that a Dockerfile builds on is one of bareImages.
func (img *image) bare() bool {
	name := strings.TrimPrefix(strings.TrimPrefix(img.base, "docker.io/"), "library/")
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return slices.Contains(bareImages, name)
}

// setTestsImage finds the image that the tests of a task need for themselves: the one of
// tests/Dockerfile, where the verifier has an environment of its own, or the agent's in which
// tests/test.sh has already installed what it installs.
func setTestsImage(task *Task, tests *node, separate bool) error {
	var err error
	if why := ownImage(tests, separate); why != nil {
		task.VerifierImage, err = task.addBuild("tests/Dockerfile", why, "Dockerfile", tests)
		return err
	}
	if task.Image == "" || !installs(tests) {
		return nil
	}
	folder := newDir(tests.name)
	maps.Copy(folder.children, tests.children)
	text := "FROM " + task.Image + "\n"
	if task.config.Environment.Workdir != "" {
		text += "WORKDIR " + task.config.Environment.Workdir + "\n"
	}
	text += installing
	folder.children[installFile] = &node{
		name: installFile, mode: 0o644, size: int64(len(text)),
		source: fstest.MapFS{installFile: {Data: []byte(text)}}, path: installFile,
	}
	if task.VerifierImage, err = task.addBuild("tests/test.sh", errInstalls, installFile, folder); err != nil {
		return err
	}
	if task.VerifierEnv["UV_OFFLINE"] == "" {
		task.VerifierEnv["UV_OFFLINE"] = "1"
	}
	return nil
}

// ownImage says why tests need the image of their Dockerfile; nil where they need none.
func ownImage(tests *node, separate bool) error {
	if !separate || tests.child("Dockerfile") == nil {
		return nil
	}
	text, err := tests.readText("Dockerfile", dockerfile.MaxBytes)
	if err != nil {
		return err
	}
	img, err := readImage(text, false)
	if err != nil {
		return err
	}
	if !img.bare() {
		return fmt.Errorf("builds on %.100q, whose programs this machine need not have", img.base)
	}
	for _, c := range img.copies {
		if _, inside := relativeTo("/tests", c.destination); !inside {
			return fmt.Errorf("line %d: copies to %s, outside of /tests", c.line, c.destination)
		}
	}
	return nil
}

// installFile is the Dockerfile of an image in which the tests ran once. Their verdict
// there counts for nothing.
const (
	installFile = "Dockerfile.rondo"
	installing  = `COPY . /tests/
RUN mkdir -p /logs/verifier; if command -v bash >/dev/null 2>&1; then bash /tests/test.sh; else sh /tests/test.sh; fi; rm -rf /tests /logs; exit 0
`
)

var (
	errInstalls = errors.New("installs programs, and a verifier has no network")
	// installer finds commands that cannot work without a network, whatever the workspace holds.
	installer = regexp.MustCompile(`(?m)^[^#\n]*\b(?:uvx|uv[ \t]+(?:add|sync)|(?:apt|apt-get|apk)(?:[ \t]+-\S+)*[ \t]+(?:install|add)|(?:curl|wget|git[ \t]+clone)[ \t][^#\n]*https:/)(?:/|\b)`)
)

// installs: test.sh, or a script beside it, installs programs. Tests that are graded bring nothing
// along that would be kept.
func installs(tests *node) bool {
	if tests == nil || !tests.isDir() || tests.child(grade.File) != nil {
		return false
	}
	for name := range tests.children {
		if !strings.HasSuffix(name, ".sh") {
			continue
		}
		if text, err := tests.readText(name, maxHiddenFile); err == nil && installer.MatchString(text) {
			return true
		}
	}
	return false
}

// setBase notes the image that a FROM names.
func (img *image) setBase(in dockerfile.Instruction) error {
	list, err := dockerfile.Words(in.Args, img.lookup)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(word string) bool { return strings.HasPrefix(word, "--") })
	if len(list) == 0 {
		return errors.New("want an image")
	}
	img.base = list[0]
	return nil
}
