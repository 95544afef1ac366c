package commits

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Reasons for which a commit becomes no task. Those of how its tests end are in judge.go.
const (
	NoParent    = "no parent"
	Binary      = "binary files"
	Odd         = "submodules, symbolic links or unusual file names"
	TooLarge    = "more than 40 files or 1500 lines"
	OtherTongue = "other languages"
	Prose       = "only documents or settings"
	NoTests     = "no tests"
	NoCode      = "no code"
	Several     = "tests of several languages or modules"
)

// Bounds of a commit: a larger one is no single piece of work.
const (
	maxFiles = 40
	maxLines = 1500    // added and deleted
	maxList  = 1 << 20 // bytes of the list of its files
	maxPatch = 4 << 20 // bytes of each of its two parts
)

// change is a file that a commit changes.
type change struct {
	name           string
	before, after  string // Git's mode; 000000 where there is no file
	binary         bool
	added, deleted int
}

func (c change) isDeletion() bool { return c.after == "000000" }

// isOdd reports whether a file is a link or a submodule, or has a name that is no plain one.
func (c change) isOdd() bool {
	return !plainName.MatchString(c.name) || len(c.name) > 300 || strings.HasPrefix(c.before, "12") ||
		strings.HasPrefix(c.after, "12") || c.before == "160000" || c.after == "160000"
}

// parts are a commit's files, and in which language its tests are.
type parts struct {
	tests, code  []string
	runnable     []string // of the tests: files that a test program can be given
	parser       string   // gotest, pytest or node
	dependencies bool     // the code changes what packages the repository needs
}

// kind is what a path says of a file.
type kind int

const (
	kindOther kind = iota
	kindProse      // documents and settings
	kindDependencies
	kindGo
	kindPython
	kindGoTest
	kindPythonTest
	kindFixture // what tests need and no test program runs by itself
)

var (
	dependencyFiles = []string{"go.mod", "go.sum", "go.work", "go.work.sum", "poetry.lock", "Pipfile", "Pipfile.lock",
		"uv.lock", "pdm.lock", "setup.py"}
	requirements = regexp.MustCompile(`^requirements[\w.-]*\.(?:txt|in)$`)
	proseEndings = []string{"", ".md", ".rst", ".txt", ".adoc", ".yml", ".yaml", ".toml", ".json", ".cfg", ".ini",
		".svg", ".csv", ".lock"}
	// plainName is that of a file which stands in a patch, in a pattern and in a
	// shell's command as it is.
	plainName = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9._/@%+=,-]*$`)
)

func kindOf(name string) kind {
	folders, base := strings.Split(path.Dir(name), "/"), path.Base(name)
	switch {
	case slices.Contains(folders, "vendor") || slices.Contains(dependencyFiles, base) || requirements.MatchString(base):
		return kindDependencies
	case slices.Contains(folders, "testdata"):
		return kindFixture
	case strings.HasSuffix(base, "_test.go"):
		return kindGoTest
	case strings.HasSuffix(base, ".py") && (strings.HasPrefix(base, "test_") || strings.HasSuffix(base, "_test.py")):
		return kindPythonTest
	case base == "conftest.py" || slices.Contains(folders, "tests"):
		return kindFixture
	case strings.HasSuffix(base, ".go"):
		return kindGo
	case strings.HasSuffix(base, ".py"):
		return kindPython
	case slices.Contains(proseEndings, path.Ext(base)) || strings.HasPrefix(base, "."):
		return kindProse
	}
	return kindOther
}

// split divides a commit's files into tests and code by their paths. The reason says why the commit
// becomes no task, "" where it may.
func split(changes []change) (p parts, reason string) {
	lines := 0
	kinds := map[kind]int{}
	for _, c := range changes {
		switch {
		case c.binary:
			return p, Binary
		case c.isOdd():
			return p, Odd
		}
		lines += c.added + c.deleted
		k := kindOf(c.name)
		kinds[k]++
		p.dependencies = p.dependencies || k == kindDependencies
		switch {
		case k < kindGoTest:
			p.code = append(p.code, c.name)
			continue
		case k != kindFixture && !c.isDeletion():
			p.runnable = append(p.runnable, c.name)
		}
		p.tests = append(p.tests, c.name)
	}
	switch tested := kinds[kindGoTest] + kinds[kindPythonTest]; {
	case len(changes) > maxFiles || lines > maxLines:
		return p, TooLarge
	case tested == 0 && kinds[kindGo]+kinds[kindPython] == 0 &&
		slices.ContainsFunc(changes, func(c change) bool { return isScript(c.name) }):
		return splitScripts(changes)
	case tested == 0 && kinds[kindGo]+kinds[kindPython] == 0 && kinds[kindOther] > 0:
		return p, OtherTongue
	case len(p.tests) == 0 && kinds[kindGo]+kinds[kindPython] == 0:
		return p, Prose
	case len(p.runnable) == 0:
		return p, NoTests
	case kinds[kindGoTest] > 0 && kinds[kindPythonTest] > 0:
		return p, Several
	}
	p.parser = "gotest"
	code := kindGo
	if kinds[kindPythonTest] > 0 {
		p.parser, code = "pytest", kindPython
	}
	if kinds[code] == 0 {
		return p, NoCode
	}
	return p, ""
}

// changesOf lists the files of a commit.
func changesOf(ctx context.Context, objects *swebench.Objects, c commit) (changes []change, err error) {
	err = objects.Git(ctx, nil, func(out io.Reader) error {
		list, err := readAll(out, maxList)
		if err == nil {
			changes, err = parseChanges(list)
		}
		return err
	}, "diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", c.parent, c.id)
	return changes, err
}

// parseChanges reads Git's two lists of the same files: ":MODE MODE ID ID LETTER" with a path
// behind it, then "ADDED\tDELETED\tPATH".
func parseChanges(list []byte) (changes []change, err error) {
	fields := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	at := map[string]int{}
	for n := 0; n < len(fields); n++ {
		if facts, raw := strings.CutPrefix(fields[n], ":"); raw {
			modes := strings.Fields(facts)
			if len(modes) != 5 || n+1 == len(fields) {
				return nil, fmt.Errorf("git diff-tree: %.100q is not an entry", fields[n])
			}
			n++
			at[fields[n]] = len(changes)
			changes = append(changes, change{name: fields[n], before: modes[0], after: modes[1]})
			continue
		}
		counts := strings.SplitN(fields[n], "\t", 3)
		if fields[n] == "" && len(fields) == 1 {
			return nil, nil // the commit changes nothing
		}
		if len(counts) != 3 {
			return nil, fmt.Errorf("git diff-tree: %.100q is no count of lines", fields[n])
		}
		index, known := at[counts[2]]
		if !known {
			return nil, fmt.Errorf("git diff-tree: %.100q is in one list only", counts[2])
		}
		one := &changes[index]
		if one.binary = counts[0] == "-"; one.binary {
			continue
		}
		var wrong [2]error
		one.added, wrong[0] = strconv.Atoi(counts[0])
		one.deleted, wrong[1] = strconv.Atoi(counts[1])
		if err := cmp.Or(wrong[0], wrong[1]); err != nil {
			return nil, fmt.Errorf("git diff-tree: %w", err)
		}
	}
	return changes, nil
}

// patchOf is the difference that a commit makes to some of its files.
func patchOf(ctx context.Context, objects *swebench.Objects, c commit, files []string) (patch string, err error) {
	args := append([]string{"diff-tree", "-r", "-p", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", c.parent, c.id, "--"}, files...)
	err = objects.Git(ctx, nil, func(out io.Reader) error {
		text, err := readAll(out, maxPatch)
		patch = string(text)
		return err
	}, args...)
	return patch, err
}

// errTooLong says that Git has more to say of a commit than is read.
var errTooLong = fmt.Errorf("%s", TooLarge)

func readAll(out io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(out, most+1))
	if err == nil && int64(len(data)) > most {
		err = errTooLong
	}
	return data, err
}

// treeOf lists the names of all files at a commit; submodules are none.
func treeOf(ctx context.Context, objects *swebench.Objects, id string) (names map[string]bool, err error) {
	err = objects.Git(ctx, nil, func(out io.Reader) error {
		list, err := readAll(out, maxTree)
		if err != nil {
			return err
		}
		names = map[string]bool{}
		for entry := range bytes.SplitSeq(list, []byte{0}) {
			if kind, name, found := strings.Cut(string(entry), "\t"); found && strings.Contains(kind, " blob ") {
				names[name] = true
			}
		}
		return nil
	}, "ls-tree", "-r", "-z", "--full-tree", id)
	return names, err
}

// maxTree bounds the list of a tree's files, in bytes.
const maxTree = 64 << 20

// command is what runs the tests of a commit whose files are names, "" where they are of several
// modules. Python's are run by pytest, or by unittest where there is none.
func (p parts) command(names map[string]bool, pytest bool) (command, parser string) {
	if p.parser == "gotest" {
		return p.goCommand(names), p.parser
	}
	set := ""
	if inFolder(names, "src") && !names["src/__init__.py"] {
		set = `PYTHONPATH="$PWD/src:$PYTHONPATH" `
	}
	if !pytest {
		return set + "python3 -m unittest -v " + strings.Join(p.runnable, " "), "unittest"
	}
	return set + "python3 -m pytest -rA " + strings.Join(p.runnable, " "), p.parser
}

func inFolder(names map[string]bool, folder string) bool {
	for name := range names {
		if strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

// goCommand tests the packages of the tests, which are of one module.
func (p parts) goCommand(names map[string]bool) string {
	modules, packages := map[string]bool{}, []string{}
	for _, name := range p.runnable {
		module := moduleOf(names, name)
		modules[module] = true
		inside := strings.TrimPrefix(strings.TrimPrefix(path.Dir(name), module), "/")
		packages = append(packages, "./"+strings.TrimPrefix(inside, "."))
	}
	if len(modules) != 1 {
		return ""
	}
	slices.Sort(packages)
	command := "go test -count=1 -v "
	for module := range modules {
		if module != "." {
			command = "go -C " + module + " test -count=1 -v "
		}
	}
	return command + strings.Join(slices.Compact(packages), " ")
}

// moduleOf is the folder of the go.mod that a file is below, "." where it is at
// the top or there is none.
func moduleOf(names map[string]bool, name string) string {
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		if names[folder+"/go.mod"] {
			return folder
		}
	}
	return "."
}
