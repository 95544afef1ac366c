package swebench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"

	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/storage/whole"
	"github.com/rondo-rl/rondo/tasks/taskfolder"
)

// workdir is where SWE-bench's images have the repository.
const workdir = "/testbed"

// Write writes the instance as a task folder below dir, under its id, which must not be there yet.
func (i Instance) Write(ctx context.Context, dir string, repos Repositories) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("instance %.100s: %w", i.ID, err)
		}
	}()
	if err := i.check(); err != nil {
		return err
	}
	source, err := repos.find(i.Repo)
	if err != nil && i.Image == "" {
		return err
	}
	files, err := i.files(source != "")
	if err != nil {
		return err
	}
	return taskfolder.Make(dir, i.ID, func(folder string) error {
		for name, text := range files {
			name = filepath.Join(folder, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
				os.WriteFile(name, []byte(text), 0o644)); err != nil {
				return err
			}
		}
		if i.Modules != "" {
			if err := linkTree(i.Modules, filepath.Join(folder, modulesFolder[i.LogParser])); err != nil {
				return err
			}
		}
		if source == "" {
			return nil // the image has it
		}
		return checkOut(ctx, source, i.BaseCommit, filepath.Join(folder, "environment/repo"))
	})
}

// modulesFolder is where a task's folder has what its tests need, and toolchain which toolchain of
// the machine they run with, by the test program.
var (
	modulesFolder = map[string]string{"gotest": "environment/modules", "node": "environment/packages"}
	toolchain     = map[string]string{"gotest": "go", "node": "node"}
)

// linkTree shows the files of a folder in another one: the tasks of a repository have
// mostly the same modules.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, inside), 0o755)
		}
		return LinkFile(name, filepath.Join(to, inside))
	})
}

// LinkFile makes a file appear at another place, too, or a copy of it where the disk, or
// another one, has no such links.
func LinkFile(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return whole.Copy(from, to)
}

// files are the task's files but the repository, which is among them or else in the image.
func (i Instance) files(repository bool) (map[string]string, error) {
	grading, err := json.Marshal(grade.Grading{Parser: i.LogParser, FailToPass: i.FailToPass, PassToPass: i.PassToPass,
		FailOnly: i.EvalType == "fail_only"})
	if err != nil {
		return nil, err
	}
	g, err := grade.Read(grading)
	if err != nil {
		return nil, err
	}
	settings, err := i.settings(g.Parser, repository)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"task.toml": settings, "instruction.md": i.Problem + "\n", "tests/" + grade.File: string(grading),
		"tests/test.sh": i.script(), "tests/test.patch": i.TestPatch,
	}
	if len(i.Hidden) > 0 && !repository {
		files["environment/Dockerfile"] = "FROM " + i.Image + "\nRUN rm -rf " + strings.Join(i.Hidden, " ") + "\n"
	}
	if i.Patch != "" {
		files["solution/gold.patch"] = i.Patch
		files["solution/solve.sh"] = "#!/bin/sh\nexec git apply --whitespace=nowarn /solution/gold.patch\n"
	}
	return files, nil
}

func (i Instance) settings(parser string, repository bool) (string, error) {
	protected := i.protected(parser)
	rondo := map[string]any{"repository": true, "protected": protected}
	if changes := i.changes(protected); len(changes) > 0 {
		rondo["changes"] = changes
	}
	environment := map[string]any{"workdir": workdir, "network_mode": "no-network"}
	if repository {
		rondo["snapshot"] = "environment/repo"
	}
	switch {
	case len(i.Hidden) > 0: // a repository of its own needs no image, and without one the image is built
		if !repository {
			rondo["image"] = true
		}
	case i.Image != "":
		rondo["image"], environment["docker_image"] = true, i.Image
	case toolchain[parser] != "":
		rondo["toolchains"] = []string{toolchain[parser]}
		if i.Modules != "" {
			rondo["modules"] = modulesFolder[parser]
		}
	}
	text, err := toml.Marshal(map[string]any{
		"schema_version": "1.4",
		"task":           map[string]any{"name": cmp.Or(i.Set, "swebench") + "/" + i.ID},
		"metadata":       map[string]any{"repo": i.Repo, "base_commit": i.BaseCommit, "rondo": rondo},
		"environment":    environment,
		"verifier":       map[string]any{"timeout_sec": 1800.0}, // SWE-bench's
	})
	return string(text), err
}

// script runs the tests between their marks. Files of the tests that the agent changed are put back
// before it begins, so a data set's own script loses its commands that check them out of a commit
// which the task's repository does not have.
func (i Instance) script() string {
	if i.EvalScript == "" {
		return "#!/bin/bash\n" + activation +
			"if [ -s /tests/test.patch ]; then\n    git apply --whitespace=nowarn /tests/test.patch || exit 1\nfi\n" +
			"echo '" + grade.StartMark + "'\n" + i.TestCommand + "\ncode=$?\necho\necho '" + grade.EndMark +
			"'\necho \"" + grade.ExitMark + "$code\"\n"
	}
	var kept []string
	for line := range strings.Lines(i.EvalScript) {
		if !strings.HasPrefix(strings.TrimSpace(line), "git checkout "+i.BaseCommit) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// activation takes the Python with what the tests need, where an image has it as SWE-bench's have.
const activation = "if [ -e /opt/miniconda3/bin/activate ]; then\n    . /opt/miniconda3/bin/activate testbed\nfi\n"

var patchedFile = regexp.MustCompile(`(?m)^(?:\+\+\+ b|--- a)/([^\t\r\n]+)`)

// protected are the patterns of the files that hold the instance's tests: what its patch of
// the tests touches, and where the tests that are graded stand, with the packages that
// Python imports on the way.
func (i Instance) protected(parser string) []string {
	found := append(touched(i.TestPatch), i.Protected...)
	for _, name := range slices.Concat(i.FailToPass, i.PassToPass) {
		switch parser {
		case "pytest":
			file, _, _ := strings.Cut(name, "::")
			found = append(found, modules(file)...)
		case "unittest":
			_, dotted, _ := strings.Cut(strings.TrimSuffix(name, ")"), "(")
			file := dottedFile(dotted)
			if i.Repo == django && file != "" {
				file = djangoTests + file
			}
			found = append(found, modules(file)...)
		}
	}
	switch parser {
	case "gotest":
		found = append(found, "**/*_test.go")
	case "node":
		found = append(append(found, scriptTests...), "**/node_modules/**")
		if !slices.Contains(touched(i.Patch), "package.json") { // of which no command takes settings of the tests
			found = append(found, "package.json")
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// scriptTests are where projects of JavaScript and TypeScript have their tests, what these read,
// and the settings of what runs and compiles them.
var scriptTests = []string{
	"**/test/**", "**/tests/**", "**/__tests__/**", "**/spec/**", "**/__mocks__/**", "**/__snapshots__/**",
	"**/fixtures/**", "**/__fixtures__/**", "**/*.test.*", "**/*.spec.*",
	"**/*-test.*", "**/*_test.*", "**/test-*.*", "**/test.*", "**/.mocharc*", "**/mocha.opts", "**/jest.*",
	"**/vitest.*", "**/vite.config.*", "**/babel.config.*", "**/.babelrc*",
	"**/.swcrc", "**/tsconfig*.json", "**/postcss.config.*", "**/.postcssrc*", "**/svelte.config.*", "**/.config/**",
}

// ScriptTest reports whether a file is one of a project's tests in JavaScript or TypeScript, or of
// what they need, by its path.
var ScriptTest = verifier.Protects(scriptTests)

// prose are files that no test program runs or reads by itself.
var prose = []string{"**/*.md", "**/*.rst", "**/*.txt"}

// changes are what is an agent's to change: files of the kinds that the instance's own fix changes,
// and those files whatever they are but for protected ones; none where no fix is known.
func (i Instance) changes(protected []string) (patterns []string) {
	for _, m := range patchedFile.FindAllStringSubmatch(i.Patch, -1) {
		name := path.Clean(m[1])
		if !slices.Contains(protected, escaped(name)) {
			patterns = append(patterns, escaped(name))
		}
		if ext := path.Ext(name); ext != "" && ext != path.Base(name) {
			patterns = append(patterns, "**/*"+escaped(ext))
		}
	}
	if len(patterns) == 0 {
		return nil
	}
	patterns = append(patterns, prose...)
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// dottedFile is the file of a test that unittest names, tests.test_x.TestCase.test_method or
// without the method: classes begin with a capital.
func dottedFile(name string) string {
	parts := strings.Split(name, ".")
	for n, part := range parts {
		if n > 0 && part != "" && unicode.IsUpper(rune(part[0])) {
			return strings.Join(parts[:n], "/") + ".py"
		}
	}
	return ""
}

// modules are a Python file and the __init__.py of the packages around it, as patterns; none for
// what is no path of a file.
func modules(file string) (patterns []string) {
	if file != path.Clean(file) || path.IsAbs(file) || strings.HasPrefix(file, "..") ||
		!strings.HasSuffix(file, ".py") {
		return nil
	}
	patterns = append(patterns, escaped(file))
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		patterns = append(patterns, escaped(folder)+"/__init__.py")
	}
	return patterns
}

// escaped is a path as a pattern for itself alone.
func escaped(name string) string { return special.ReplaceAllString(name, `\$0`) }

var special = regexp.MustCompile(`[\\*?\[]`)

// touched are the paths that a patch changes, adds or deletes, as patterns.
func touched(patch string) []string {
	found := []string{}
	for _, m := range patchedFile.FindAllStringSubmatch(patch, -1) {
		found = append(found, escaped(path.Clean(m[1])))
	}
	slices.Sort(found)
	return slices.Compact(found)
}
