// Package terminalbench turns tasks in Terminal-Bench's first layout (task.yaml,
// docker-compose.yaml, Dockerfile, run-tests.sh, solution.sh, tests/) into Harbor's task
// folders. It refuses a task that needs more than one sandbox has, or that would show the agent
// its tests, and names the setting.
package terminalbench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/tasks/taskfolder"
)

// settings are those of a task.yaml, as far as they have a counterpart.
type settings struct {
	Instruction  string   `yaml:"instruction"`
	Author       string   `yaml:"author_name"`
	Email        string   `yaml:"author_email"`
	Difficulty   string   `yaml:"difficulty"`
	Category     string   `yaml:"category"`
	Tags         []string `yaml:"tags"`
	Parser       string   `yaml:"parser_name"`
	AgentTimeout float64  `yaml:"max_agent_timeout_sec"`
	TestTimeout  float64  `yaml:"max_test_timeout_sec"`
	SameShell    bool     `yaml:"run_tests_in_same_shell"`
}

// Terminal-Bench's own times, in seconds, where a task says none.
const agentTimeout, testTimeout = 360, 60

// Bounds of a task's folder.
const (
	maxTasks = 10_000
	maxFiles = 10_000
	maxBytes = 1 << 30
	maxText  = 1 << 20 // of a script or a Dockerfile
)

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Tasks are the names of the tasks in a folder of them. A folder that is a task
// itself has the one name ".".
func Tasks(source string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(source, "task.yaml")); err == nil {
		return []string{"."}, nil
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(source, entry.Name(), "task.yaml")); err == nil && entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: want a folder with task.yaml, or a folder of such folders", source)
	}
	if len(names) > maxTasks {
		return nil, fmt.Errorf("%s: %d tasks, at most %d", source, len(names), maxTasks)
	}
	return names, nil
}

// Converted is a task that was written. OwnShell: its tests were to run in the agent's shell, whose
// variables and programs they miss in one of their own.
type Converted struct {
	Name     string
	OwnShell bool
}

// Convert writes the task in a folder as a Harbor task below dir, under the folder's name,
// which must not be there yet.
func Convert(source, dir string) (task Converted, err error) {
	absolute, err := filepath.Abs(source)
	if err != nil {
		return task, err
	}
	name := filepath.Base(absolute)
	defer func() {
		if err != nil {
			err = fmt.Errorf("task %.100s: %w", name, err)
		}
	}()
	if !validID.MatchString(name) {
		return task, errors.New("its folder's name: want letters, digits, dots, - and _")
	}
	root, err := os.OpenRoot(source) // links in it lead nowhere else
	if err != nil {
		return task, err
	}
	defer root.Close()
	files, ownShell, err := convert(root.FS(), name)
	if err != nil {
		return task, err
	}
	return Converted{name, ownShell}, taskfolder.Make(dir, name,
		func(folder string) error { return files.write(root.FS(), folder) })
}

// file is one of the converted task's: a text, or a file of the source.
type file struct {
	text, from string
	mode       fs.FileMode
}

// files are those of the converted task, by their paths.
type files map[string]file

func (f files) write(source fs.FS, folder string) error {
	left := int64(maxBytes)
	for name, one := range f {
		name = filepath.Join(folder, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err != nil {
			return err
		}
		if one.from == "" {
			err = os.WriteFile(name, []byte(one.text), one.mode)
		} else {
			err = copyFile(source, one, name, &left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(source fs.FS, one file, into string, left *int64) error {
	from, err := source.Open(one.from)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(into, os.O_WRONLY|os.O_CREATE|os.O_EXCL, one.mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, io.LimitReader(from, *left+1))
	if *left -= n; *left < 0 {
		err = fmt.Errorf("its files have more than %d bytes", int64(maxBytes))
	}
	return errors.Join(err, to.Close())
}

// convert decides what the task's files are.
func convert(source fs.FS, name string) (made files, ownShell bool, err error) {
	text, err := readText(source, "task.yaml")
	if err != nil {
		return nil, false, err
	}
	var s settings
	if err := yamltext.Unmarshal([]byte(text), &s); err != nil {
		return nil, false, fmt.Errorf("task.yaml: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, false, fmt.Errorf("task.yaml: %w", err)
	}
	main, err := readCompose(source)
	if err != nil {
		return nil, false, fmt.Errorf("docker-compose.yaml: %w", err)
	}
	config, err := s.toml(name, main)
	if err != nil {
		return nil, false, err
	}
	made = files{"task.toml": {text: config, mode: 0o644},
		"instruction.md": {text: strings.TrimRight(s.Instruction, "\n") + "\n", mode: 0o644}}
	if err := made.addTests(source); err != nil {
		return nil, false, err
	}
	if err := made.addSolution(source); err != nil {
		return nil, false, err
	}
	if main.image != "" {
		return made, s.SameShell, nil
	}
	return made, s.SameShell, made.addEnvironment(source, main)
}

func (s *settings) check() error {
	s.AgentTimeout = cmp.Or(s.AgentTimeout, agentTimeout)
	s.TestTimeout = cmp.Or(s.TestTimeout, testTimeout)
	switch {
	case strings.TrimSpace(s.Instruction) == "":
		return errors.New("instruction: is empty")
	case s.Parser == "swebench":
		return errors.New("parser_name swebench: this is a row of SWE-bench, which is in tests/config.json: import such rows by `rondo tasks import swebench`")
	case s.Parser != "" && s.Parser != "pytest":
		return fmt.Errorf("parser_name %.60q: only pytest's tests say by their exit code whether they passed", s.Parser)
	}
	return nil
}

func (s *settings) toml(name string, main *service) (string, error) {
	environment := map[string]any{}
	if main.image != "" {
		environment["docker_image"] = main.image
	}
	if main.cpus > 0 {
		environment["cpus"] = int(math.Ceil(main.cpus))
	}
	if main.memory > 0 {
		environment["memory_mb"] = main.memory
	}
	metadata := map[string]any{}
	for key, value := range map[string]string{"author_name": s.Author, "author_email": s.Email,
		"difficulty": s.Difficulty, "category": s.Category} {
		if value != "" {
			metadata[key] = value
		}
	}
	if len(s.Tags) > 0 {
		metadata["tags"] = s.Tags
	}
	text, err := toml.Marshal(map[string]any{
		"schema_version": "1.4", "task": map[string]any{"name": "terminal-bench/" + name}, "metadata": metadata,
		"environment": environment,
		"agent":       map[string]any{"timeout_sec": s.AgentTimeout},
		"verifier":    map[string]any{"timeout_sec": s.TestTimeout},
	})
	return string(text), err
}

// The tests' script runs in a shell of its own, whatever it ends by. Its exit code is the verdict.
const (
	beforeTests = "#!/bin/bash\nexport TEST_DIR=/tests\necho 0 >/logs/verifier/reward.txt\n(\n"
	behindTests = "\n)\nif [ $? -eq 0 ]; then\n    echo 1 >/logs/verifier/reward.txt\nfi\n"
)

func (f files) addTests(source fs.FS) error {
	script, err := readText(source, "run-tests.sh")
	if err != nil {
		return err
	}
	if err := f.addTree(source, "tests", "tests", nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, there := f["tests/"+grade.File]; there {
		return fmt.Errorf("tests/%s: the name is that of a file that grades a task", grade.File)
	}
	f["tests/test.sh"] = file{text: beforeTests + strings.TrimRight(script, "\n") + behindTests, mode: 0o755}
	return nil
}

func (f files) addSolution(source fs.FS) error {
	script, err := readText(source, "solution.sh")
	if err == nil {
		f["solution/solve.sh"] = file{text: script, mode: 0o755}
		return nil
	}
	if _, keys := fs.Stat(source, "solution.yaml"); keys == nil {
		return errors.New("solution.yaml: its keystrokes need a terminal: write solution.sh")
	}
	return err
}

// hidden are files of a task that are no part of its environment, as the agent could read the
// solution or the tests in it.
var hidden = []string{"task.yaml", "docker-compose.yaml", "run-tests.sh", "solution.sh", "solution.yaml", "tests"}

// copies finds where a Dockerfile copies one of them.
var copies = regexp.MustCompile(`(?mi)^[ \t]*(?:COPY|ADD)[ \t][^#\n]*?[ \t\["](?:\./)?(task\.yaml|run-tests\.sh|solution\.sh|solution\.yaml|tests)[/ \t",]`)

func (f files) addEnvironment(source fs.FS, main *service) error {
	text, err := readText(source, path.Join(main.context, main.dockerfile))
	if err != nil {
		return err
	}
	without := hidden
	if top, _, _ := strings.Cut(main.context, "/"); slices.Contains(hidden, top) {
		return fmt.Errorf("docker-compose.yaml: build: context %.100q: the agent could read the tests in it",
			main.context)
	} else if main.context != "." {
		without = nil
	} else if found := copies.FindStringSubmatch(text); found != nil {
		return fmt.Errorf("%s: copies %s, where the agent could read it", main.dockerfile, found[1])
	}
	if err := f.addTree(source, main.context, "environment", without); err != nil {
		return err
	}
	delete(f, path.Join("environment", main.dockerfile))
	f["environment/Dockerfile"] = file{text: strings.TrimRight(text, "\n") + "\n" + main.additions, mode: 0o644}
	return nil
}

// addTree adds the files of a folder, without some that are at its top.
func (f files) addTree(source fs.FS, from, to string, without []string) error {
	return fs.WalkDir(source, from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below := strings.TrimPrefix(strings.TrimPrefix(name, from), "/")
		if from == "." {
			below = name
		}
		if slices.Contains(without, below) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%.200s: is no file, but %s", name, info.Mode().Type())
		}
		if len(f) >= maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		f[path.Join(to, below)] = file{from: name, mode: 0o644 | info.Mode()&0o111}
		return nil
	})
}

func readText(source fs.FS, name string) (string, error) {
	from, err := source.Open(name)
	if err != nil {
		return "", err
	}
	defer from.Close()
	info, err := from.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: is no file", name)
	}
	data, err := io.ReadAll(io.LimitReader(from, maxText+1))
	if err == nil && len(data) > maxText {
		err = fmt.Errorf("%s: more than %d bytes", name, maxText)
	}
	return string(data), err
}
