package verifier

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// gradedOutput is what is kept of a log that is graded, in bytes: half of its
// beginning and half of its end.
const gradedOutput = 8 << 20

// graded makes ready what graded tests need, and answers the grading; nil where the tests write a
// reward. Nothing inside reads the grading, so the tests are without it from here on: code under
// test is not told which of them decide.
func graded(spec Spec) (*grade.Grading, Spec, error) {
	tree, err := sandbox.Tree(grade.MaxFile, sandbox.Bytes(spec.Tests), nil)
	if err != nil {
		return nil, spec, err
	}
	data, err := fs.ReadFile(tree, grade.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, spec, nil
	}
	if err != nil {
		return nil, spec, err
	}
	g, err := grade.Read(data)
	if err != nil {
		return nil, spec, fmt.Errorf("%s: %w", grade.File, err)
	}
	if tree, err = sandbox.Tree(sandbox.MaxBytes, sandbox.Bytes(spec.Tests), nil); err != nil {
		return nil, spec, err
	}
	spec.Tests, err = sandbox.Pack(treeWithout{tree, grade.File})
	spec.Limits.OutputBytes, spec.reporting = gradedOutput, newReporting()
	return g, spec, err
}

// treeWithout is a tree without one of the files at its top.
type treeWithout struct {
	fs.FS
	name string
}

func (w treeWithout) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	if name != "." {
		return entries, err
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool { return e.Name() == w.name }), err
}

// ReadLink and Lstat tell of links.
func (w treeWithout) ReadLink(name string) (string, error)   { return fs.ReadLink(w.FS, name) }
func (w treeWithout) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(w.FS, name) }

// reporters are loaded by test programs and report which tests these ran.
//
//go:embed reporters
var reporters embed.FS

// reportersFolder is where they are inside.
const reportersFolder = "/verifier"

func packReporters() ([]byte, error) {
	folder, err := fs.Sub(reporters, "reporters")
	if err != nil {
		return nil, err
	}
	return sandbox.Pack(folder)
}

// maxReporting is how many processes of the tests can report.
const maxReporting = 1000

// reporting is the channel over which test programs report, and the nonces by
// which they are told apart.
type reporting struct {
	nonces  []string
	channel *sandbox.Channel
}

func newReporting() reporting {
	var r reporting
	var greeting strings.Builder
	for range maxReporting {
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		nonce := hex.EncodeToString(random[:])
		r.nonces = append(r.nonces, nonce)
		greeting.WriteString(nonce + "\n")
	}
	r.channel = &sandbox.Channel{Greeting: greeting.String(), MaxBytes: grade.MaxReport}
	return r
}

// environment lets Python and go test load the reporters, beside what the task sets.
func (r reporting) environment(env map[string]string) {
	env["PYTHONPATH"] = strings.TrimSuffix(reportersFolder+":"+env["PYTHONPATH"], ":")
	env["GOFLAGS"] = strings.TrimSpace(env["GOFLAGS"] + " -exec=" + reportersFolder + "/gotest")
}

// report reads what the tests reported: over the channel, in a file, or in what they printed.
func (r reporting) report(ctx context.Context, sb *sandbox.Sandbox, g *grade.Grading,
	result sandbox.Result) (grade.Report, error) {
	switch {
	case g.Parser == grade.JUnit:
		data, err := readWritten(ctx, sb, grade.JUnitFile, result.Detached, grade.MaxReport)
		switch {
		case errors.Is(err, sandbox.ErrClosed) || errors.Is(err, errTampered) || errors.Is(err, errReplaced):
			return grade.Report{}, err
		case err != nil:
			return grade.Report{}, fmt.Errorf("%w: %s: %w", grade.ErrNoEvidence, grade.JUnitFile, err)
		}
		return grade.ReadJUnit(data)
	case g.Printed():
		return g.ReadLog(string(result.Stdout))
	}
	return grade.ReadReport(result.Sent, r.nonces)
}

// reward reads the reward of tests that ended with result: from the file that they wrote, or as g
// grades what they reported. That a process got away from them matters for a file alone: another
// report is one of processes that came to their end, and a second mark in the log is refused.
func reward(ctx context.Context, sb *sandbox.Sandbox, g *grade.Grading, r reporting, logs sandbox.FileState,
	result sandbox.Result) (components map[string]float64, report grade.Report, err error) {
	if g == nil {
		components, err = readReward(ctx, sb, logs, result)
		return components, report, err
	}
	if dropped := cmp.Or(result.DroppedBytes, result.SentDropped); dropped > 0 {
		return nil, report, fmt.Errorf("%w: the log is %d bytes too long to be graded", errBadReward, dropped)
	}
	if report, err = r.report(ctx, sb, g, result); err != nil {
		return nil, report, err
	}
	components, err = g.Grade(result.Stdout, report)
	if errors.Is(err, grade.ErrNoEvidence) {
		err = fmt.Errorf("%w; exit %d", err, result.ExitCode)
	}
	return components, report, err
}

// conclude notes what the tests were graded by, and in the log which of them
// the report does not have.
func (o *Outcome) conclude(g *grade.Grading) {
	if o.grading = g; g != nil {
		o.Log = append(o.Log, missingNote(g, o.report)...)
	}
}

// missingNote says in a log which tests were asked for and are not in the report.
func missingNote(g *grade.Grading, report grade.Report) string {
	names := g.Missing(report)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d of the %d graded tests are not in the report of %s: %.400s\n",
		len(names), len(g.FailToPass)+len(g.PassToPass), g.Parser,
		strings.Join(names[:min(len(names), namedTests)], ", "))
}

// namedTests is how many tests a log or an error names.
const namedTests = 5
