package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks/dockerfile"
)

// setSnapshot finds the workspace: the folder that [metadata.rondo] names, or
// what environment/Dockerfile copies, or environment/ as it is. Where the
// Dockerfile does more than to copy files, it is in the image that is built of it.
func setSnapshot(task *Task, folder *node, cfg *config) error {
	named := cfg.Metadata.Rondo.Snapshot
	img, err := imageOf(folder, named != "")
	if why := (*Unsupported)(nil); errors.As(err, &why) && named == "" {
		return setBuilt(task, folder, cfg, errors.New(why.Why))
	}
	if err != nil {
		return err
	}
	environment := folder.child("environment")
	if img != nil && named == "" {
		if why := wantsImage(folder, cfg); why != nil {
			return setBuilt(task, folder, cfg, why)
		}
	}
	if err := setWorkdir(task, cfg, img); err != nil {
		return err
	}
	if img != nil && named == "" {
		var why error
		if task.Snapshot, why = copiedSnapshot(environment, img, task.Workdir); why != nil {
			return setBuilt(task, folder, cfg, why)
		}
	}
	if img != nil {
		for name, value := range img.env {
			if _, set := task.Env[name]; !set {
				task.Env[name] = value
			}
		}
	}
	if err := setImage(task, cfg, named != "" || img != nil ||
		environment != nil && environment.isDir() && len(environment.children) > 0); err != nil {
		return err
	}
	switch {
	case named != "":
		task.Snapshot, err = namedFolder(folder, "snapshot", named)
	case img != nil:
		if len(img.copies) == 0 {
			task.Warnings = append(task.Warnings,
				"environment/Dockerfile: the workspace is empty, and the sandbox has this machine's programs instead of those of "+img.base+
					": metadata.rondo.image = true takes those, once `rondo tasks build` has made the image")
		}
	case task.Image != "" && (environment == nil || len(environment.children) == 0):
		task.Workdir = cfg.Environment.Workdir // OpenImage finds what lies there
	default:
		task.Snapshot, err = wholeEnvironment(folder)
	}
	if err != nil || task.Snapshot == nil {
		return err
	}
	if err := checkArtifacts("artifacts", cfg.Artifacts, task.Workdir, task.warn); err != nil {
		return fmt.Errorf("task.toml: %w", err)
	}
	return scrubHistory(task, cfg.Metadata.Rondo.Repository)
}

// imageOf reads environment/Dockerfile; nil when there is none.
func imageOf(folder *node, prepared bool) (*image, error) {
	environment := folder.child("environment")
	if environment == nil || environment.child("Dockerfile") == nil {
		return nil, nil
	}
	text, err := environment.readText("Dockerfile", dockerfile.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("environment/%w", err)
	}
	img, err := readImage(text, prepared)
	if err != nil {
		return nil, &Unsupported{Field: "environment/Dockerfile", Why: err.Error()}
	}
	return img, nil
}

// wantsImage says why a task wants the image of its Dockerfile although copying files would
// do; nil where it does not.
func wantsImage(folder *node, cfg *config) error {
	switch {
	case cfg.Environment.DockerImage != "":
		return nil
	case cfg.Metadata.Rondo.Image:
		return errors.New("metadata.rondo.image asks for its image")
	case installs(folder.child("tests")):
		return fmt.Errorf("its image is that of the tests, and tests/test.sh %w", errInstalls)
	}
	return nil
}

func setWorkdir(task *Task, cfg *config, img *image) error {
	task.Workdir = defaultWorkdir
	if img != nil && img.workdir != "" {
		task.Workdir = img.workdir
	}
	if dir := cfg.Environment.Workdir; dir != "" {
		if err := checkWorkdir(dir); err != nil {
			return fmt.Errorf("task.toml: environment.%w", err)
		}
		task.Workdir = dir
	}
	return nil
}

// setModules finds the modules that the task's builds take.
func setModules(task *Task, folder *node, cfg *config) (err error) {
	name := cfg.Metadata.Rondo.Modules
	if name == "" {
		return nil
	}
	node := slices.Contains(task.Toolchains, "node") && !slices.Contains(task.Toolchains, "go")
	if !node && !slices.Contains(task.Toolchains, "go") {
		return errors.New(`task.toml: metadata.rondo.modules: they are for metadata.rondo.toolchains = ["go"] or ["node"]`)
	}
	if task.Modules, err = namedFolder(folder, "modules", name); err != nil || !node {
		return err
	}
	if task.Snapshot != nil {
		if _, err := fs.Stat(task.Snapshot, "node_modules"); err == nil {
			return errors.New("task.toml: metadata.rondo.modules: the workspace has a node_modules of its own")
		}
	}
	if _, err := sandbox.ReadNodePackages(task.Modules); err != nil {
		return fmt.Errorf("task.toml: metadata.rondo.modules: %w", err)
	}
	return nil
}

// namedFolder is a folder that a key of [metadata.rondo] names.
func namedFolder(folder *node, key, name string) (fs.FS, error) {
	fail := func(why string) (fs.FS, error) {
		return nil, fmt.Errorf("task.toml: metadata.rondo.%s: %q %s", key, name, why)
	}
	name = strings.TrimSuffix(name, "/")
	if !fs.ValidPath(name) || name == "." {
		return fail("is no path of a folder inside of the task")
	}
	if top, _, _ := strings.Cut(name, "/"); top == "tests" || top == "solution" || top == "steps" {
		return fail("would show the verifier or the solution to the agent")
	}
	found := folder.find(name)
	if found == nil || !found.isDir() {
		return fail("is no folder of the task")
	}
	if len(found.children) == 0 {
		return fail("is empty")
	}
	return found.tree(name)
}

func wholeEnvironment(folder *node) (fs.FS, error) {
	environment := folder.child("environment")
	if environment == nil || !environment.isDir() || len(environment.children) == 0 {
		return nil, errors.New("environment/: missing or empty: it holds the repository that the agent works on")
	}
	if err := refuseCompose(environment); err != nil {
		return nil, err
	}
	return environment.tree("environment")
}

// copiedSnapshot lays out what COPY and ADD bring into the workspace.
func copiedSnapshot(environment *node, img *image, workdir string) (fs.FS, error) {
	if len(img.copies) == 0 && !img.bare() {
		return nil, fmt.Errorf("copies nothing into the workspace, and %.100q may hold one: %s", img.base, prepare)
	}
	l := &layout{root: newDir(path.Base(workdir))}
	for _, name := range img.folders {
		if inside, found := relativeTo(workdir, name); found {
			if _, err := l.folder(inside); err != nil {
				return nil, fmt.Errorf("RUN mkdir: %w", err)
			}
		}
	}
	for _, c := range img.copies {
		if err := l.copy(environment, c, workdir); err != nil {
			return nil, fmt.Errorf("line %d: %w", c.line, err)
		}
	}
	if len(img.copies) > 0 && len(l.root.children) == 0 {
		return nil, errors.New("copies empty folders only")
	}
	return l.root.tree("environment")
}

// relativeTo gives a path of the image relative to the workspace.
func relativeTo(workdir, name string) (string, bool) {
	relative, found := strings.CutPrefix(name+"/", workdir+"/")
	return path.Clean("./" + relative), found
}

// layout is a workspace under construction. Repeated COPYs of one folder can
// multiply its files, so they are counted again.
type layout struct {
	root  *node
	files int
	bytes int64
}

func (l *layout) copy(environment *node, c copying, workdir string) error {
	source := environment.find(c.source)
	if source == nil {
		return fmt.Errorf("source %q is not in environment/", c.source)
	}
	if source.isLink() {
		return fmt.Errorf("source %q is a symbolic link", c.source)
	}
	target, inside := relativeTo(workdir, c.destination)
	if !inside {
		return fmt.Errorf("copies to %s, outside of the workspace %s: %s", c.destination, workdir, prepare)
	}
	if source.isDir() {
		return l.merge(target, source)
	}
	if existing := l.root.find(target); c.into || existing != nil && existing.isDir() {
		target = path.Join(target, source.name)
	}
	parent, err := l.folder(path.Dir(target))
	if err != nil {
		return err
	}
	return l.put(parent, path.Base(target), source)
}

// folder makes a folder and its parents.
func (l *layout) folder(name string) (*node, error) {
	dir := l.root
	if name == "." {
		return dir, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if err := checkName(part); err != nil {
			return nil, err
		}
		next := dir.child(part)
		if next == nil {
			next = newDir(part)
			dir.children[part] = next
		}
		if !next.isDir() {
			return nil, fmt.Errorf("%s is a file and a folder", name)
		}
		dir = next
	}
	return dir, nil
}

func (l *layout) merge(target string, source *node) error {
	dir, err := l.folder(target)
	if err != nil {
		return err
	}
	for _, child := range source.sorted() {
		if child.isDir() {
			err = l.merge(path.Join(target, child.name), child)
		} else {
			err = l.put(dir, child.name, child)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) put(dir *node, name string, source *node) error {
	if err := checkName(name); err != nil {
		return err
	}
	if existing := dir.child(name); existing != nil && existing.isDir() {
		return fmt.Errorf("%s is a folder and a file", name)
	}
	l.files++
	l.bytes += source.size
	if l.files > maxFiles || l.bytes > maxBytes {
		return fmt.Errorf("copies more than %d files or %d bytes", maxFiles, int64(maxBytes))
	}
	placed := *source
	placed.name = name
	dir.children[name] = &placed
	return nil
}
