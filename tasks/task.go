// Package tasks loads repository-repair tasks in the Harbor folder format
// (task.toml, instruction.md, environment/, tests/test.sh, solution/solve.sh)
// and proves that they are sound before anything trains on them.
//
// A pack comes from anywhere, so nothing in it is trusted: every size, count,
// name and link is checked while it is read, and what Rondo cannot honour is
// an error that names the file and says what to change.
package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/canary"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// Task is one task, ready to be packed and run. The three trees read their
// files lazily from the pack; symbolic links in them stay inside of them, and
// file modes are normalised to 0644 or 0755.
type Task struct {
	Name        string // the folder's name: [A-Za-z0-9._-], at most 100 bytes
	Instruction string // instruction.md, what the agent is asked
	Difficulty  string // [metadata] difficulty, free text
	Keywords    []string

	Workdir    string   // absolute path of the workspace in the sandbox
	Toolchains []string // [metadata.rondo] toolchains, such as "go"

	Protected []string // [metadata.rondo] protected: paths that no agent may change, patterns of verifier.Spec

	// Separate, [metadata.rondo] verifier = "separate": the tests run in another sandbox than the
	// code under test. See verifier.Spec.
	Separate bool

	// Transcript, [metadata.rondo] transcript: the tests find what was said in the
	// rollout. See verifier.Spec.
	Transcript bool

	// Deterministic are command lines, [metadata.rondo] deterministic, that leave nothing outside
	// of the workspace and whose answer follows from the workspace and the shell's folder and
	// variables alone. They decide nothing that a task's digest is about.
	Deterministic []string

	AgentTimeout    time.Duration // 0: the task sets none
	VerifierTimeout time.Duration
	Env             map[string]string  // of the agent's commands and of the verifier
	VerifierEnv     map[string]string  // of the verifier only, over Env
	SolutionEnv     map[string]string  // of the reference fix only, over Env
	Collect         []verifier.Hook    // [[verifier.collect]], run over the agent's final workspace
	Healthcheck     *verifier.Hook     // nil: the task has none
	MemoryMB        int                // MiB; 0: the sandbox's default
	DiskMB          int                // MiB that it asks to write; 0: it says nothing
	CPUs            int                // that a tool runner must have; 0: any
	Labels          []string           // [metadata.rondo] labels that a tool runner must have
	Network         *netaccess.Network // the most that it wants of its run's network; nil: all that the run allows

	// Image is the container image whose tree is the task's root file system; "" for that of the
	// machine. OpenImage sets ImageID, the image's digest, and Root, the folder of its tree, and
	// where the image has them Workdir and Snapshot.
	Image, ImageID, Root string
	config               *config // what OpenImage has yet to heed

	// VerifierImage is the image whose tree the tests have as their root file system, where that
	// is another one than the agent's. OpenImage sets VerifierImageID, and adds the image's
	// variables to VerifierEnv.
	VerifierImage, VerifierImageID string

	// Builds are those of the images that have to be built of the task's files before it can run.
	Builds []Build

	// Stages are given to the agent one after the other, and RewardStrategy makes one
	// reward of their verdicts. Instruction is the first stage's then, Tests are the last
	// one's, and Solution is nil.
	Stages         []Stage
	RewardStrategy string // one of events' Strategy constants

	Snapshot fs.FS // the workspace as the agent finds it
	Tests    fs.FS // /tests of the verifier; holds test.sh
	Solution fs.FS // /solution of the reference fix; nil when the task has none
	Modules  fs.FS // [metadata.rondo] modules: a Go module proxy's files, with all that builds need; nil for none

	// Digest is the hex SHA-256 over all of the above: the same task from a
	// directory and from an embedded pack has the same digest.
	Digest string

	// Warnings are settings of the task that Rondo does not honour but that
	// do not change what is measured.
	Warnings []string
}

// Verifier is the separation between the tests and the code under test that the task asks for: one
// of runfile's Verifier constants.
func (t *Task) Verifier() string {
	if t.Separate {
		return runfile.VerifierSeparate
	}
	if guarded, _ := t.Canaries(); guarded > 0 {
		return runfile.VerifierInProcess
	}
	return runfile.VerifierUnguarded
}

// Canaries counts the tests that must begin to pass, and those of them that can be made
// canaries: in a task of several stages in the stage with the fewest. A task that is not
// graded has none of either.
func (t *Task) Canaries() (guarded, all int) {
	stages := t.Stages
	if len(stages) == 0 {
		stages = []Stage{{Tests: t.Tests}}
	}
	for i, s := range stages {
		g, err := gradingOf(s.Tests)
		if err != nil || g == nil {
			return 0, 0
		}
		n := canary.Count(canary.Find(g, s.Tests, t.Snapshot))
		if i == 0 || n < guarded {
			guarded, all = n, len(g.FailToPass)
		}
	}
	return guarded, all
}

// gradingOf reads the list of tests that a folder of tests is graded by; nil when it has none.
func gradingOf(tests fs.FS) (*grade.Grading, error) {
	data, err := fs.ReadFile(tests, grade.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return grade.Read(data)
}

// maxTasks bounds one pack; larger sets are split into several packs.
const maxTasks = 10_000

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// LoadDir loads the pack at a directory of this machine. It cannot leave that
// directory: links that lead out of it are refused by the operating system.
func LoadDir(dir string) ([]*Task, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("task pack %s: %w", dir, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("task pack %s: %w", dir, err)
	}
	loaded, err := load(root.FS(), filepath.Base(abs))
	if err != nil {
		return loaded, fmt.Errorf("task pack %s: %w", dir, err)
	}
	return loaded, nil
}

// LoadPack loads a folder of task folders, or a single task folder, sorted by
// name. The error joins what is wrong with each bad task; the good tasks are
// returned beside it. A single task folder takes its name from [task] name.
func LoadPack(fsys fs.FS) ([]*Task, error) { return load(fsys, "") }

func load(fsys fs.FS, rootName string) ([]*Task, error) {
	entries, err := readDir(fsys, ".", maxTasks+maxExtras)
	if err != nil {
		return nil, err
	}
	if looksLikeTask(entries) {
		task, err := loadTask(fsys, ".", rootName)
		if err != nil {
			return nil, err
		}
		return []*Task{task}, nil
	}
	var (
		loaded []*Task
		errs   []error
	)
	for _, entry := range entries {
		task, err := loadEntry(fsys, entry)
		if err != nil {
			errs = append(errs, err)
		}
		if task != nil {
			loaded = append(loaded, task)
		}
	}
	if len(loaded) > maxTasks {
		return nil, fmt.Errorf("%d tasks, the limit of one pack is %d: split it", len(loaded), maxTasks)
	}
	if len(loaded) == 0 && len(errs) == 0 {
		return nil, errors.New("no task found: a pack is a folder of task folders, each with a task.toml")
	}
	return loaded, errors.Join(errs...)
}

// maxExtras is how many entries of a pack's folder may be something else than
// a task (dataset.toml, README.md, ...).
const maxExtras = 1000

// loadEntry loads one entry of the pack's folder; nil, nil when it is no task.
func loadEntry(fsys fs.FS, entry fs.DirEntry) (*Task, error) {
	name := entry.Name()
	if name[0] == '.' || name[0] == '_' {
		return nil, nil
	}
	if entry.Type()&fs.ModeSymlink != 0 {
		return nil, &taskError{name, errors.New("is a symbolic link: a pack holds real folders only")}
	}
	if !entry.IsDir() {
		return nil, nil
	}
	inside, err := readDir(fsys, name, maxFiles)
	if err != nil {
		return nil, &taskError{name, err}
	}
	if !looksLikeTask(inside) {
		return nil, nil
	}
	return loadTask(fsys, name, name)
}

// looksLikeTask reports whether a folder means to be a task: it has one of the
// two files that every task has, even when it lacks the other.
func looksLikeTask(entries []fs.DirEntry) bool {
	for _, entry := range entries {
		if name := entry.Name(); name == "task.toml" || name == "instruction.md" {
			return true
		}
	}
	return false
}

func loadTask(fsys fs.FS, dir, name string) (*Task, error) {
	task, err := readTask(fsys, dir, name)
	if err != nil {
		return nil, &taskError{name, err}
	}
	return task, nil
}

func readTask(fsys fs.FS, dir, name string) (*Task, error) {
	if name != "" && !validName.MatchString(name) {
		return nil, fmt.Errorf("bad name: want %s", validName)
	}
	folder, err := scan(fsys, dir)
	if err != nil {
		return nil, err
	}
	cfg, err := readConfig(folder)
	if err != nil {
		return nil, err
	}
	if name == "" {
		if name = path.Base(cfg.Task.Name); !validName.MatchString(name) {
			return nil, errors.New(`task.toml: task.name: a single task folder needs its name here, "org/name"`)
		}
	}
	task := &Task{Name: name}
	if err := cfg.apply(task); err != nil {
		return nil, fmt.Errorf("task.toml: %w", err)
	}
	parts := []func(*Task, *node, *config) error{setInstruction, setSnapshot, setTests, setSolution}
	if len(cfg.Stages) > 0 {
		parts = []func(*Task, *node, *config) error{setSnapshot, setStages}
	} else if folder.child("steps") != nil {
		return nil, errors.New("steps: task.toml has no [[steps]] that say in which order they come")
	}
	for _, set := range parts {
		if err := set(task, folder, cfg); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(task.checkGraded(), setModules(task, folder, cfg)); err != nil {
		return nil, err
	}
	task.Digest, err = digest(task)
	return task, err
}

// maxInstruction bounds instruction.md, in bytes: it opens every conversation.
const maxInstruction = 64 << 10

func setInstruction(task *Task, folder *node, _ *config) (err error) {
	task.Instruction, err = readInstruction(folder)
	return err
}

func readInstruction(dir *node) (string, error) {
	text, err := dir.readText("instruction.md", maxInstruction)
	if err != nil {
		return "", err
	}
	if text = strings.TrimSpace(dropCanary(text)); text == "" {
		return "", errors.New("instruction.md: is empty: say there what the agent shall do")
	}
	return text, nil
}

// dropCanary removes the leading lines that benchmark authors put in to find
// their text in training data; the agent should not read them.
func dropCanary(text string) string {
	for {
		line, rest, _ := strings.Cut(text, "\n")
		if !strings.Contains(strings.ToLower(line), "canary") || rest == "" {
			return text
		}
		text = rest
	}
}

func setTests(task *Task, folder *node, cfg *config) (err error) {
	tests := folder.child("tests")
	if task.Tests, err = testsIn(tests); err != nil {
		return err
	}
	return setTestsImage(task, tests, cfg.Verifier.separate())
}

// testsIn checks a folder of tests.
func testsIn(tests *node) (fs.FS, error) {
	if tests == nil || !tests.isDir() {
		return nil, errors.New("tests/test.sh: missing: a task needs a verifier that writes /logs/verifier/reward.json")
	}
	script, err := tests.readText("test.sh", maxHiddenFile)
	if err != nil {
		return nil, fmt.Errorf("tests/%w: a task needs a verifier that writes /logs/verifier/reward.json", err)
	}
	if strings.TrimSpace(script) == "" {
		return nil, errors.New("tests/test.sh: is empty: it must write /logs/verifier/reward.json")
	}
	if err := checkGrading(tests); err != nil {
		return nil, fmt.Errorf("tests/%s: %w", grade.File, err)
	}
	return tests.tree("tests")
}

// checkGraded refuses separate tests whose report could be written by the code under test: by what
// it prints, or in a file.
func (t *Task) checkGraded() error {
	if !t.Separate {
		return nil
	}
	folders := []fs.FS{t.Tests}
	for _, s := range t.Stages {
		folders = append(folders, s.Tests)
	}
	for _, tests := range folders {
		if tests == nil {
			continue
		}
		g, err := gradingOf(tests)
		if err != nil {
			return err
		}
		if g != nil && !g.Channelled() {
			return fmt.Errorf("metadata.rondo.verifier: separate tests cannot be graded by the report of %s (tests/%s), which the code under test could write: only by that of pytest, unittest or gotest",
				g.Parser, grade.File)
		}
	}
	return nil
}

// checkGrading checks the list of tests that a task is graded by, if it has one.
func checkGrading(tests *node) error {
	file := tests.child(grade.File)
	if file == nil {
		return nil
	}
	if !file.mode.IsRegular() || file.size > grade.MaxFile {
		return fmt.Errorf("want a file of at most %d bytes", grade.MaxFile)
	}
	data, err := file.read()
	if err != nil {
		return err
	}
	_, err = grade.Read(data)
	return err
}

func setSolution(task *Task, folder *node, _ *config) (err error) {
	task.Solution, err = solutionIn(folder)
	return err
}

func solutionIn(dir *node) (fs.FS, error) {
	solution := dir.child("solution")
	if solution == nil || !solution.isDir() || solution.child("solve.sh") == nil {
		return nil, nil
	}
	if _, err := solution.readText("solve.sh", maxHiddenFile); err != nil {
		return nil, fmt.Errorf("solution/%w", err)
	}
	return solution.tree("solution")
}
