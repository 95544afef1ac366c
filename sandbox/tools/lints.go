package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

const (
	lintTime       = 30 * time.Second // all linters of one call together
	maxLintFiles   = 200
	maxLintPaths   = 50
	maxDiagnostics = 500
	maxLintMessage = 500 // bytes
)

type readLintsArguments struct {
	Paths []string `json:"paths"`
}

// Lints is the answer of read_lints. With nothing found and everything checked it is {}.
type Lints struct {
	Files []FileLints `json:"linterErrorsByFile,omitempty"`
	// NotChecked are the files about which nothing, or not all, is known.
	NotChecked []Unchecked `json:"notChecked,omitempty"`
	// Dropped counts diagnostics for which there was no room.
	Dropped int `json:"dropped,omitempty"`
}

// FileLints are what linters say of a file.
type FileLints struct {
	Path   string       `json:"relativeWorkspacePath"`
	Errors []Diagnostic `json:"errors"`
}

// Diagnostic is one remark.
type Diagnostic struct {
	Message  string `json:"message"`
	Range    Range  `json:"range"`
	Severity string `json:"severity"`
}

// Range is where a remark belongs.
type Range struct {
	Start Position `json:"startPosition"`
	End   Position `json:"endPosition"`
}

// Position counts from 1; a column of 0 is unknown.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Unchecked says why a file was not checked, or by what alone.
type Unchecked struct {
	Path   string `json:"relativeWorkspacePath"`
	Reason string `json:"reason"`
}

// Severities of a Diagnostic.
const (
	severityError   = "DIAGNOSTIC_SEVERITY_ERROR"
	severityWarning = "DIAGNOSTIC_SEVERITY_WARNING"
	severityInfo    = "DIAGNOSTIC_SEVERITY_INFORMATION"
	severityHint    = "DIAGNOSTIC_SEVERITY_HINT"
)

// lint is one call under way.
type lint struct {
	sb       *sandbox.Sandbox
	deadline time.Time
	files    []string // asked for, relative to the workspace
	found    map[string][]Diagnostic
	answer   Lints
	count    int
	hurried  bool // a linter had no time
}

func readLints(ctx context.Context, sb *sandbox.Sandbox, a readLintsArguments) (observation, error) {
	l := &lint{sb: sb, deadline: time.Now().Add(lintTime), found: map[string][]Diagnostic{}}
	if refused, err := l.collect(ctx, a.Paths); refused.failed || err != nil {
		return refused, err
	}
	for _, kind := range linters {
		files := slices.DeleteFunc(slices.Clone(l.files),
			func(name string) bool { return !slices.Contains(kind.extensions, path.Ext(name)) })
		if len(files) == 0 {
			continue
		}
		if err := kind.check(ctx, l, files); err != nil {
			return observation{}, err
		}
	}
	for _, name := range l.files {
		if found := l.found[name]; len(found) > 0 {
			slices.SortStableFunc(found, func(a, b Diagnostic) int { return a.Range.Start.Line - b.Range.Start.Line })
			l.answer.Files = append(l.answer.Files, FileLints{name, found})
		}
	}
	encoded, err := json.Marshal(l.answer)
	return observation{content: string(encoded), hurried: l.hurried}, err
}

// collect finds the files that are asked for, or refuses.
func (l *lint) collect(ctx context.Context, paths []string) (refused observation, err error) {
	if len(paths) > maxLintPaths {
		return refusal("paths: %d of them (limit %d)", len(paths), maxLintPaths), nil
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, name := range paths {
		relative, ok := relativePath(l.sb.Workdir(), name)
		if !ok {
			return refusal("paths: %.200q is no file or folder of the workspace; globs are not understood", name), nil
		}
		names, complete, err := l.sb.Glob(ctx, relative, "*.{"+strings.Join(lintable(), ",")+"}", maxLintFiles)
		switch {
		case errors.Is(err, syscall.ENOTDIR):
			l.add(relative)
		case err != nil:
			return fileRefusal("check", name, err)
		case !complete:
			l.unchecked(path.Join(relative, "."), fmt.Sprintf("it has more than %d files: name fewer", maxLintFiles))
		}
		slices.Sort(names)
		for _, found := range names {
			l.add(path.Join(relative, found))
		}
	}
	return observation{}, nil
}

// add notes a file, and says so where no linter knows its kind.
func (l *lint) add(name string) {
	switch {
	case slices.Contains(l.files, name):
	case len(l.files) == maxLintFiles:
		l.unchecked(name, fmt.Sprintf("more than %d files: name fewer", maxLintFiles))
	case !slices.Contains(lintable(), strings.TrimPrefix(path.Ext(name), ".")):
		l.unchecked(name, "no linter is known for this kind of file")
	default:
		l.files = append(l.files, name)
	}
}

func (l *lint) unchecked(name, reason string) {
	if len(l.answer.NotChecked) < maxLintFiles {
		l.answer.NotChecked = append(l.answer.NotChecked, Unchecked{name, reason})
	}
}

func (l *lint) allUnchecked(files []string, reason string) {
	for _, name := range files {
		l.unchecked(name, reason)
	}
}

// report notes a diagnostic of a file that was asked for; linters name files as they like.
func (l *lint) report(dir, name string, d Diagnostic) {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	relative, ok := relativePath(l.sb.Workdir(), name)
	if !ok || !slices.Contains(l.files, relative) {
		return
	}
	if len(d.Message) > maxLintMessage {
		d.Message = strings.ToValidUTF8(d.Message[:maxLintMessage], "") + " [...]"
	}
	if d.Range.End == (Position{}) {
		d.Range.End = d.Range.Start
	}
	if slices.Contains(l.found[relative], d) {
		return // a compiler says it as well
	}
	if l.count == maxDiagnostics {
		l.answer.Dropped++
		return
	}
	l.count++
	l.found[relative] = append(l.found[relative], d)
}

// exitNotFound is how a program ends that is not there.
const exitNotFound = 127

// program runs a linter in a folder of the workspace. Where it is missing, or has
// no time, reason says so.
func (l *lint) program(ctx context.Context, dir string,
	argv ...string) (result sandbox.Result, reason string, err error) {
	left := time.Until(l.deadline)
	if left < time.Second {
		l.hurried = true
		return result, fmt.Sprintf("there was no time for %s: %v are for all linters", argv[0], lintTime), nil
	}
	result, err = l.sb.Exec(ctx, sandbox.Command{Argv: argv, Dir: dir, Wall: left})
	switch {
	case err != nil:
		return result, "", err
	case result.ExitCode == exitNotFound:
		reason = argv[0] + " is not installed here"
	case result.TimedOut:
		l.hurried = true
		reason = fmt.Sprintf("%s was ended after %.0f s", argv[0], result.Duration.Seconds())
	case result.DroppedBytes > 0:
		reason = argv[0] + " said too much: name fewer files"
	}
	return result, reason, nil
}
