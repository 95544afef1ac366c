// Package swebench turns instances in the formats of SWE-bench into task folders: a repository at a
// commit, an issue, and tests of which some must begin to pass.
package swebench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/wording"
)

// Instance is one row of a data set, or one folder of a repository of tasks.
type Instance struct {
	ID         string `json:"instance_id" yaml:"instance_id"`
	Repo       string `json:"repo" yaml:"repo"` // "owner/name"
	BaseCommit string `json:"base_commit" yaml:"base_commit"`
	Version    string `json:"version" yaml:"version"` // of the repository, as a table of Specs knows it
	Problem    string `json:"problem_statement" yaml:"-"`
	Patch      string `json:"patch" yaml:"-"`      // the fix
	TestPatch  string `json:"test_patch" yaml:"-"` // of the tests that show it
	FailToPass Names  `json:"FAIL_TO_PASS" yaml:"-"`
	PassToPass Names  `json:"PASS_TO_PASS" yaml:"-"`
	LogParser  string `json:"log_parser" yaml:"log_parser"`
	EvalType   string `json:"eval_type" yaml:"eval_type"` // pass_and_fail, the default, or fail_only
	EvalScript string `json:"eval_script" yaml:"-"`
	// TestCommand runs the tests where there is no script.
	TestCommand string `json:"test_cmd" yaml:"test_cmd"`
	// Image is a container image with the repository in workdir and what its tests need.
	Image string `json:"docker_image" yaml:"docker_image"`
	// Hidden are paths in the image that would show the tests: the task has an image without them.
	// Protected are files of the workspace that run them.
	Hidden, Protected []string `json:"-" yaml:"-"`
	// Modules is a folder of this machine that holds what the tests need: modules of Go as a module
	// proxy has them, or a set of packages of npm; "" for none.
	Modules string `json:"-" yaml:"-"`
	// Set names the data set; "" is swebench.
	Set string `json:"-" yaml:"-"`
}

// Names is a list of tests, or one in JSON inside of a text, as data sets have it.
type Names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *Names) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		data = []byte(text)
	}
	if err := json.Unmarshal(data, (*[]string)(n)); err != nil {
		return err
	}
	*n = slices.DeleteFunc(*n, progress.MatchString)
	return nil
}

// progress is what pytest prints at the end of a line. Some published lists
// have it among the names.
var progress = regexp.MustCompile(`^\[ *\d+%\]$`)

// Bounds of a source of instances.
const (
	maxInstances = 10_000
	maxFile      = 16 << 20  // bytes of one file, or one line
	maxSource    = 512 << 20 // bytes of all lines
)

// Read reads instances from a .json or .jsonl file, or from a folder with tasks/<id>/, and gives
// each one, or what is wrong with it: others are read all the same.
func Read(source string, each func(one Instance, wrong error)) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return readFolder(os.DirFS(source), each)
	}
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > maxSource {
		return fmt.Errorf("%s: %d bytes, the limit is %d", source, info.Size(), maxSource)
	}
	if err := readLines(file, each); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// readLines reads a JSON array, or objects one after the other.
func readLines(from io.Reader, each func(Instance, error)) error {
	number := 0
	return readRows(from, maxFile, func(row json.RawMessage, wrong error) {
		number++
		each(instanceOf(number, row, wrong))
	})
}

func tooMany(n int) error {
	if n > maxInstances {
		return fmt.Errorf("more than %d instances: split the file", maxInstances)
	}
	return nil
}

// firstByte is the first that is no space; spaces are read.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) {
			return c, r.UnreadByte()
		}
	}
}

func readFolder(fsys fs.FS, each func(Instance, error)) error {
	entries, err := fs.ReadDir(fsys, "tasks")
	if err != nil {
		return fmt.Errorf("%w: want a folder with tasks/<instance>/task.yaml", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
	for i, entry := range entries {
		if err := tooMany(i + 1); err != nil {
			return err
		}
		one, err := readInstance(fsys, path.Join("tasks", entry.Name()))
		if err != nil {
			err = fmt.Errorf("tasks/%s: %w", entry.Name(), err)
		}
		if one.ID == "" {
			one.ID = entry.Name()
		}
		each(one, err)
	}
	return nil
}

// readInstance reads one folder: task.yaml, tests.json, problem_statement.md, gold.patch,
// test.patch, and eval.sh if it is there.
func readInstance(fsys fs.FS, dir string) (one Instance, err error) {
	settings, err := readText(fsys, path.Join(dir, "task.yaml"))
	if err != nil {
		return one, err
	}
	if err := yamltext.Unmarshal([]byte(settings), &one); err != nil {
		return one, fmt.Errorf("task.yaml: %w", err)
	}
	if err := yamltext.CheckScalars([]byte(settings), &one); err != nil { // a version of 5.0 would be "5"
		return one, fmt.Errorf("task.yaml: %w", err)
	}
	tests, err := readText(fsys, path.Join(dir, "tests.json"))
	if err != nil {
		return one, err
	}
	if err := json.Unmarshal([]byte(tests), &one); err != nil {
		return one, fmt.Errorf("tests.json: %w", wording.Plain(err))
	}
	for name, into := range map[string]*string{"problem_statement.md": &one.Problem, "gold.patch": &one.Patch,
		"test.patch": &one.TestPatch, "eval.sh": &one.EvalScript} {
		text, err := readText(fsys, path.Join(dir, name))
		if err != nil && !(name == "eval.sh" && errors.Is(err, fs.ErrNotExist)) {
			return one, err
		}
		*into = text
	}
	return one, nil
}

func readText(fsys fs.FS, name string) (string, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("%s: want a file of at most %d bytes", name, maxFile)
	}
	data, err := fs.ReadFile(fsys, name)
	return string(data), err
}

var (
	validID     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	validRepo   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	validCommit = regexp.MustCompile(`^[0-9a-f]{7,64}\^?$`) // or the one before it
	validImage  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,255}$`)
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9._/:@%+=,-]+$`)
	patchedTest = regexp.MustCompile(`(?m)^\+\+\+ b/([^\t\r\n]+)`)
)

func (i Instance) check() error {
	switch {
	case !validID.MatchString(i.ID):
		return fmt.Errorf("instance_id %.60q: want letters, digits, dots, - and _", i.ID)
	case !validRepo.MatchString(i.Repo):
		return fmt.Errorf("repo %.60q: want owner/name", i.Repo)
	case !validCommit.MatchString(i.BaseCommit):
		return fmt.Errorf("base_commit %.60q: want a commit's hexadecimal digits", i.BaseCommit)
	case strings.TrimSpace(i.Problem) == "":
		return errors.New("problem_statement: is empty")
	case i.EvalScript == "" && i.TestCommand == "":
		return fmt.Errorf("eval_script and test_cmd: are missing, as they are in published rows: say with --test-cmd, or in a --specs file, how %s %s runs its tests", i.Repo, i.Version)
	case i.LogParser == "":
		return fmt.Errorf("log_parser: is missing, as it is in published rows: say with --log-parser, or in a --specs file, which test program %s %s runs: "+
			"pytest, gotest, unittest, node, cargo, jest, sympy or junit", i.Repo, i.Version)
	case i.Image != "" && !validImage.MatchString(i.Image):
		return fmt.Errorf("docker_image %.100q: want the name of an image", i.Image)
	case i.EvalType != "" && i.EvalType != "pass_and_fail" && i.EvalType != "fail_only":
		return fmt.Errorf("eval_type %.60q: want pass_and_fail or fail_only", i.EvalType)
	}
	return nil
}

// Repositories finds the folder or Git repository of a repo's name: one given by that
// name, or the one for all.
type Repositories map[string]string

// ParseRepositories reads "PATH" and "OWNER/NAME=PATH".
func ParseRepositories(flags []string) (Repositories, error) {
	found := Repositories{}
	for _, flag := range flags {
		name, dir, named := strings.Cut(flag, "=")
		if !named {
			name, dir = "", flag
		}
		if named && !validRepo.MatchString(name) || dir == "" {
			return nil, fmt.Errorf("--repo %q: want PATH or OWNER/NAME=PATH", flag)
		}
		found[name] = filepath.Clean(dir)
	}
	return found, nil
}

func (r Repositories) find(repo string) (string, error) {
	if dir, ok := r[repo]; ok {
		return dir, nil
	}
	if dir, ok := r[""]; ok {
		return dir, nil
	}
	return "", fmt.Errorf("repo %s: nothing is downloaded: name its folder or Git repository with --repo %s=PATH, or an image that holds it with --image", repo, repo)
}
