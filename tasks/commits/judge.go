package commits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Reasons of how a commit's tests end.
const (
	Lacks        = "needs packages that are not here"
	Dependencies = "changes what packages it needs, and does not build here"
	NoPython     = "no test program: the sandbox's python3 has no pytest, and unittest finds no tests"
	FailsFixed   = "none of its tests passes with the fix"
	PassesBefore = "no test fails without the fix"
	Flaky        = "flaky"
	NoVerdict    = "tests give no verdict without the fix"
	Slow         = "tests take too long"
	Hungry       = "tests take too much memory"
	Cramped      = "tests take more disk than a sandbox has"
	NoTask       = "its files cannot be a task"
	Unsound      = "not sound"
	Part         = "part of a pull request that is a task"
)

// repeats is how often the tests run on each side.
const repeats = 3

// maxDetail bounds what is told of a commit beside its reason, in bytes.
const maxDetail = 300

type commit struct {
	id, parent string
	pull       bool   // the merge of a pull request, whose change is that from its first parent
	within     string // the merge of the pull request that has brought it, "" for none
	task       string // the name of its task, "" for the repository's with the beginning of id
	agent      string // a commit behind parent that is an agent's answer, whose tests must not all pass; "" for none
}

// taskOf names the task of a commit.
func (im *maker) taskOf(c commit) string {
	if c.task != "" {
		return c.task
	}
	return im.name + "-" + c.id[:12]
}

// Outcome is what became of a commit: a task, or the reason why none.
type Outcome struct {
	Task   string `json:"task,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Limit is how long the tests could run, in seconds, where they took too long.
	Limit float64 `json:"limit_s,omitempty"`
	// Change tells the files of a session, and what became of them, from others.
	Change string `json:"change,omitempty"`
	// Files tells the archives of a session from those that its user hands in later.
	Files string `json:"files,omitempty"`
	// Masked counts the secrets in these files that the task has marks for.
	Masked int `json:"masked,omitempty"`

	ran    bool   // its tests ran
	folder string // where the task lies until it is counted
}

func dropped(reason string, detail ...any) Outcome {
	return Outcome{Reason: reason, Detail: fmt.Sprintf("%.*s", maxDetail,
		strings.TrimSpace(strings.ToValidUTF8(fmt.Sprint(detail...), "?")))}
}

// judge makes a commit a task, in a folder below work, or says why it is none. An error is the
// machine's, and says nothing of the commit.
func (im *maker) judge(ctx context.Context, c commit, work string) (Outcome, error) {
	if c.parent == "" {
		return dropped(NoParent), nil
	}
	changes, err := changesOf(ctx, im.objects, c)
	if errors.Is(err, errTooLong) {
		return dropped(TooLarge), nil
	}
	if err != nil {
		return Outcome{}, err
	}
	p, reason := split(changes)
	if reason != "" {
		return dropped(reason), nil
	}
	row, names, reason, err := im.row(ctx, c, p)
	if err != nil || reason != "" {
		return dropped(reason), err
	}
	set := moduleSet{}
	switch p.parser {
	case "gotest":
		set, err = im.modulesOf(ctx, c, names, moduleOf(names, p.runnable[0]))
	case "node":
		var script script
		var drop Outcome
		if script, drop, err = im.script(ctx, c, names, p); err != nil || drop.Reason != "" {
			return drop, err
		}
		row.TestCommand, row.Protected = script.command, script.protected
		set, err = im.packagesOf(ctx, c, names, script.manifest, script.program)
	}
	if err != nil || set.reason != "" {
		return dropped(set.reason, set.because), err
	}
	row.Modules = set.folder
	outcome, err := im.run(ctx, c, row, p, set, work)
	outcome.ran = true
	return outcome, err
}

// row is a commit as a row of SWE-bench's kind, but for the tests that are graded, with the names
// of all files at the commit. The reason says why there is none.
func (im *maker) row(ctx context.Context, c commit, p parts) (row swebench.Instance, names map[string]bool,
	reason string, err error) {
	patch, err := patchOf(ctx, im.objects, c, p.code)
	if err != nil {
		return tooLarge(err)
	}
	tests, err := patchOf(ctx, im.objects, c, p.tests)
	if err != nil {
		return tooLarge(err)
	}
	message, err := im.message(ctx, c)
	if err != nil {
		return tooLarge(err)
	}
	problem, reason := instruction(message, patch)
	if reason != "" {
		return row, nil, reason, nil
	}
	names, err = treeOf(ctx, im.objects, c.id)
	if err != nil {
		return tooLarge(err)
	}
	pytest := false
	if p.parser == "pytest" {
		if pytest, err = im.pytest(ctx); err != nil {
			return row, nil, "", err
		}
	}
	command, parser := "", p.parser
	if parser != "node" { // which package.json says
		if command, parser = p.command(names, pytest); command == "" {
			return row, nil, Several, nil
		}
	}
	return swebench.Instance{
		Set: im.set, ID: im.taskOf(c), Repo: im.set + "/" + im.name, BaseCommit: c.parent,
		Problem: problem + declared(patch, tests, p.parser), Patch: patch, TestPatch: tests,
		TestCommand: command, LogParser: parser,
	}, names, "", nil
}

func tooLarge(err error) (row swebench.Instance, names map[string]bool, reason string, failed error) {
	if errors.Is(err, errTooLong) {
		return row, nil, TooLarge, nil
	}
	return row, nil, "", err
}

// message is what a commit says; of a pull request, what its author has written.
func (im *maker) message(ctx context.Context, c commit) (text string, err error) {
	err = im.objects.Git(ctx, nil, func(out io.Reader) error {
		data, err := readAll(out, maxPatch)
		text = string(data)
		if _, written, found := strings.Cut(text, "\n\n"); c.pull && found {
			text = written
		} else if c.pull {
			text = "" // it has no title
		}
		return err
	}, "log", "-1", "--no-show-signature", "--no-notes", "--no-color", "--encoding=UTF-8", "--format=%B", c.id)
	return text, err
}

// hasPytest asks a sandbox's python3 once.
func (im *maker) hasPytest(ctx context.Context) func() (bool, error) {
	return sync.OnceValues(func() (bool, error) {
		sb, err := sandbox.New(ctx, sandbox.Spec{Name: "import", AllowInsecure: im.Machine.AllowInsecure})
		if err != nil {
			return false, err
		}
		defer sb.Close()
		result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"python3", "-c", "import pytest"}})
		return err == nil && result.ExitCode == 0, err
	})
}

// unknown is a test that there is not: a task that is only looked at needs one to be graded by.
const unknown = "rondo: not known yet"

// run runs the tests of a row on both sides, and makes the task of those that show the fix every
// time. set says which module they may miss.
func (im *maker) run(ctx context.Context, c commit, row swebench.Instance, p parts, set moduleSet,
	work string) (Outcome, error) {
	row.FailToPass = swebench.Names{unknown}
	task, err := im.write(ctx, row, filepath.Join(work, "first"))
	if err != nil {
		return im.ofError(NoTask, err)
	}
	task.VerifierTimeout = im.Timeout
	observer, err := tasks.Observe(ctx, task, im.machine(work))
	if errors.Is(err, tasks.ErrSolution) {
		return dropped(NoTask, err), nil
	}
	if err != nil {
		return im.ofError(NoTask, err)
	}
	defer observer.Close()
	var with, without []grade.Results
	for range repeats {
		report, log, err := observer.Run(ctx, true)
		if passed := ended(report.Results, grade.Passed); err != nil || len(passed) == 0 {
			return im.failsFixed(p, row.LogParser, report.Ran, log, set, err)
		}
		with = append(with, report.Results)
		if report, _, err = observer.Run(ctx, false); err != nil {
			return im.ofError(NoVerdict, err)
		}
		without = append(without, report.Results)
		if fixed, kept, flaky := compare(with, without, namedIn(row.TestPatch, row.LogParser)); len(fixed) == 0 {
			return dropped(unfixed(kept, flaky, without), list(flaky)), nil
		}
	}
	row.FailToPass, row.PassToPass, _ = compare(with, without, namedIn(row.TestPatch, row.LogParser))
	if err := observer.Close(); err != nil {
		return Outcome{}, err
	}
	if drop, err := im.tryAgent(ctx, c, row, p, work); err != nil || drop.Reason != "" {
		return drop, err
	}
	return im.prove(ctx, row, work)
}

// unfixed is the reason of a commit without a test that shows its fix every time.
func unfixed(kept, flaky []string, without []grade.Results) string {
	switch {
	case len(flaky) > 0:
		return Flaky
	case slices.ContainsFunc(kept, func(name string) bool { return absent(without, name) }):
		return FailsFixed // what passes is not of this commit: without the fix nothing compiles
	}
	return PassesBefore
}

func list(names []string) string { return strings.Join(names[:min(len(names), 5)], ", ") }

// machine keeps what is unpacked of modules beside the task of a commit: both go
// when the commit is done.
func (im *maker) machine(work string) tasks.Machine {
	m := im.Machine
	m.ModuleCache = filepath.Join(work, "modules")
	return m
}

// prove makes the task, and a last check of it by the rules of lint.
func (im *maker) prove(ctx context.Context, row swebench.Instance, work string) (Outcome, error) {
	folder := filepath.Join(work, "last")
	task, err := im.write(ctx, row, folder)
	if err != nil {
		return im.ofError(NoTask, err)
	}
	report := tasks.Lint(ctx, task, tasks.LintOptions{Machine: im.machine(work), Repeats: 1})
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	if !report.OK {
		return dropped(Unsound, strings.Join(report.Problems, "; ")), nil
	}
	return Outcome{Task: row.ID, folder: filepath.Join(folder, row.ID)}, nil
}

// write makes the folder of a task, and loads it.
func (im *maker) write(ctx context.Context, row swebench.Instance, folder string) (*tasks.Task, error) {
	if err := row.Write(ctx, folder, swebench.Repositories{row.Repo: im.Repository}); err != nil {
		return nil, err
	}
	loaded, err := tasks.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	if len(loaded) != 1 {
		return nil, fmt.Errorf("%d tasks in %s, want one", len(loaded), folder)
	}
	return loaded[0], nil
}

// ofError tells what ends the work on a commit by its own doing, with the reason that is its or
// else the given one, from what is the machine's.
func (im *maker) ofError(reason string, err error) (Outcome, error) {
	var path *fs.PathError
	var link *os.LinkError
	switch class := fault.ClassOf(err); {
	case errors.Is(err, sandbox.ErrPackages):
		return dropped(Unpackable, err), nil
	case errors.Is(err, context.Canceled), errors.Is(err, tasks.ErrModules):
		return Outcome{}, err
	case class == verifier.ClassTimeout:
		one := dropped(Slow, "more than ", im.Timeout)
		one.Limit = im.Timeout.Seconds()
		return one, nil
	case class == verifier.ClassMemory:
		return dropped(Hungry, err), nil
	case class != "":
		return dropped(reason, err), nil
	case reason == NoTask && !errors.As(err, &path) && !errors.As(err, &link):
		return dropped(reason, err), nil
	}
	return Outcome{}, err
}

// missing is what go and Python print where packages are not there.
var missing = regexp.MustCompile(`\[setup failed\]|no required module provides package|cannot find (?:module|package)|GOPROXY=off|missing go\.sum entry|ModuleNotFoundError: No module named`)

// failsFixed says why no test passed although the fix is there.
func (im *maker) failsFixed(p parts, parser string, ran bool, log string, set moduleSet, err error) (Outcome, error) {
	if err != nil {
		if one, err := im.ofError(FailsFixed, err); err != nil || one.Reason != FailsFixed {
			return one, err
		}
	}
	last := log[max(0, len(log)-maxDetail):]
	if err != nil && !errors.Is(err, grade.ErrNoEvidence) {
		last = err.Error()
	}
	switch {
	case strings.Contains(log, "no space left on device"):
		return dropped(Cramped), nil
	case set.lacks != "" && missing.MatchString(log):
		return dropped(Unfetched, set.lacks), nil
	case parser == "node" && missingScript.MatchString(log):
		return lacksScript(missingScript.FindStringSubmatch(log)[1]), nil
	case p.dependencies:
		return dropped(Dependencies, last), nil
	case missing.MatchString(log):
		return dropped(Lacks, missing.FindString(log)), nil
	case parser == "unittest" && !ran:
		return dropped(NoPython), nil
	}
	if set.scripts != "" {
		last = fmt.Sprintf("(packages with install scripts, which do not run: %.100s) %s", set.scripts, last)
	}
	return dropped(FailsFixed, last), nil
}

// ended are the tests of a status.
func ended(results grade.Results, status grade.Status) (names []string) {
	for name, s := range results {
		if s == status {
			names = append(names, name)
		}
	}
	return names
}

// compare finds the tests that pass with the fix each time and never without it, and those that
// pass each time on both sides. Flaky are the others that have passed with the fix and do not end
// the same each time. A test that is skipped without the fix is none of these. One that is not
// there without the fix, as its package does not compile or its process has died, shows the fix if
// the patch of the tests names it, as named says: the others were only in its way.
func compare(with, without []grade.Results, named func(test string) bool) (fixed, kept, flaky []string) {
	all := map[string]bool{}
	for _, results := range with {
		for _, name := range ended(results, grade.Passed) {
			all[name] = true
		}
	}
	for name := range all {
		after, before := count(with, name, grade.Passed), count(without, name, grade.Passed)
		switch skipped := count(without, name, grade.Skipped) + count(without, name, grade.XFailed); {
		case after < len(with) || before > 0 && before < len(without) || skipped > 0 && skipped < len(without):
			flaky = append(flaky, name)
		case before == len(without) || absent(without, name) && !named(name):
			kept = append(kept, name)
		case skipped == 0:
			fixed = append(fixed, name)
		}
	}
	slices.Sort(fixed)
	slices.Sort(kept)
	slices.Sort(flaky)
	return fixed, kept, flaky
}

// namedIn says which tests the lines that a patch changes name.
func namedIn(patch, parser string) func(test string) bool {
	if parser == "node" {
		titles := titlesOf(patch)
		return func(test string) bool { // a title may have the sign between titles in it
			for rest, more := test, true; more; _, rest, more = strings.Cut(rest, " > ") {
				if titles[rest] {
					return true
				}
			}
			return false
		}
	}
	words := wordsOf(patch)
	return func(test string) bool { return words[function(test)] }
}

// function is the name of a test's function: of TestIt/part, tests/test_x.py::TestX::test_it[1] or
// test_it (tests.test_x.TestX.test_it).
func function(name string) string {
	if end := strings.IndexAny(name, "[ "); end >= 0 {
		name = name[:end]
	}
	if strings.Contains(name, ".py::") {
		return name[strings.LastIndex(name, "::")+2:]
	}
	name, _, _ = strings.Cut(name, "/")
	return name
}

// begins is a line that begins a function, or the end of what stood before it.
var begins = regexp.MustCompile(`^\s*(?:async\s+)?(?:def|func|class)\b|^[^\s]`)

// wordsOf are the names in the lines that a patch changes, and in those that begin the functions
// around them: a function that only stands before what is added is not changed.
func wordsOf(patch string) map[string]bool {
	words := map[string]bool{}
	add := func(text string) {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) &&
				!unicode.IsDigit(r)
		}) {
			words[word] = true
		}
	}
	around := ""
	for line := range strings.Lines(patch) {
		if header, hunk := strings.CutPrefix(line, "@@ "); hunk {
			_, around, _ = strings.Cut(header, "@@")
			continue
		}
		if strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "--- ") || !strings.ContainsAny(line[:1], "+- ") {
			continue
		}
		text := line[1:]
		if line[0] != '-' && begins.MatchString(text) {
			around = text
		}
		if line[0] != ' ' && strings.TrimSpace(text) != "" {
			add(text)
			add(around)
		}
	}
	return words
}

func absent(runs []grade.Results, name string) bool { return count(runs, name, "") == len(runs) }

func count(runs []grade.Results, name string, status grade.Status) (n int) {
	for _, results := range runs {
		if results[name] == status {
			n++
		}
	}
	return n
}

// tryAgent drops a row whose tests all pass with an agent's answer in place of the fix, and one
// whose answer cannot be tried: it may pass. No reason says that the answer fails.
func (im *maker) tryAgent(ctx context.Context, c commit, row swebench.Instance, p parts, work string) (Outcome, error) {
	if c.agent == "" {
		return Outcome{}, nil
	}
	answer := commit{id: c.agent, parent: c.parent}
	changes, err := changesOf(ctx, im.objects, answer)
	if errors.Is(err, errTooLong) {
		return dropped(AgentUntried, "it changes too many files"), nil
	}
	if err != nil {
		return Outcome{}, err
	}
	var code []string
	packages := false
	for _, change := range changes {
		switch {
		case p.isTest(change.name):
			continue // those of the user stand in its place
		case change.binary:
			return dropped(AgentUntried, "it changes a binary file"), nil
		case change.isOdd():
			return dropped(AgentUntried, "it changes a link, or a file with an unusual name"), nil
		}
		packages = packages || kindOf(change.name) == kindDependencies || slices.Contains(npmFiles, change.name)
		code = append(code, change.name)
	}
	if len(code) == 0 {
		return Outcome{}, nil // it has what the tests fail with
	}
	if row.Patch, err = patchOf(ctx, im.objects, answer, code); errors.Is(err, errTooLong) {
		return dropped(AgentUntried, fmt.Sprintf("it changes more than %d bytes", maxPatch)), nil
	}
	if err != nil {
		return Outcome{}, err
	}
	task, err := im.write(ctx, row, filepath.Join(work, "agent"))
	if err != nil {
		return untried(im.ofError(NoTask, err))
	}
	task.VerifierTimeout = im.Timeout
	observer, err := tasks.Observe(ctx, task, im.machine(work))
	if errors.Is(err, tasks.ErrSolution) {
		return dropped(AgentUntried, err), nil
	}
	if err != nil {
		return untried(im.ofError(NoTask, err))
	}
	defer observer.Close()
	report, _, err := observer.Run(ctx, true)
	if err != nil {
		return untried(im.ofError(NoVerdict, err))
	}
	for _, name := range slices.Concat(row.FailToPass, row.PassToPass) {
		switch {
		case report.Results[name] == grade.Passed:
		case packages:
			return dropped(AgentUntried, "it changes what packages it needs, and does not pass here"), nil
		default:
			return Outcome{}, nil
		}
	}
	return dropped(AgentPasses), nil
}

// untried is what becomes of a row whose agent's answer has no verdict.
func untried(why Outcome, err error) (Outcome, error) {
	if err != nil {
		return Outcome{}, err
	}
	one := dropped(AgentUntried, why.Reason, ": ", why.Detail)
	one.Limit = why.Limit
	return one, nil
}

// isTest reports whether a file is one of the tests, by its path.
func (p parts) isTest(name string) bool {
	if p.parser == "node" {
		return swebench.ScriptTest(name)
	}
	return kindOf(name) >= kindGoTest
}
