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
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// gradedOutput is what is kept of a log that is graded, in bytes: half of its beginning and half of its end.
const gradedOutput = 8 << 20

// gradingOf reads the grading among a task's tests; nil when there is none.
func gradingOf(tests []byte) (*grade.Grading, error) {
	tree, err := sandbox.Tree(grade.MaxFile, sandbox.Bytes(tests), nil)
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(tree, grade.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g, err := grade.Read(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", grade.File, err)
	}
	return g, nil
}

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

// reporting is the channel over which test programs report, and the nonces by which they are told apart.
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
func (r reporting) report(ctx context.Context, sb *sandbox.Sandbox, g *grade.Grading, result sandbox.Result) (grade.Report, error) {
	switch {
	case g.Parser == grade.JUnit:
		data, err := sb.ReadFile(ctx, LogsFolder+"/"+grade.JUnitFile, grade.MaxReport)
		if errors.Is(err, sandbox.ErrClosed) {
			return grade.Report{}, err
		}
		if err != nil {
			return grade.Report{}, fmt.Errorf("%w: %s: %w", grade.ErrNoEvidence, grade.JUnitFile, err)
		}
		return grade.ReadJUnit(data)
	case g.Printed():
		return g.ReadLog(string(result.Stdout))
	}
	return grade.ReadReport(result.Sent, r.nonces)
}

// graded grades what the tests reported. That a process got away from them does not matter here: the report is one of processes that came to their end,
// and a second mark in the log is refused.
func graded(ctx context.Context, sb *sandbox.Sandbox, g *grade.Grading, r reporting, result sandbox.Result) (components map[string]float64, report grade.Report, err error) {
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

// missingNote says in a log which tests were asked for and are not in the report.
func missingNote(g *grade.Grading, report grade.Report) string {
	names := g.Missing(report)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d of the %d graded tests are not in the report of %s: %.400s\n",
		len(names), len(g.FailToPass)+len(g.PassToPass), g.Parser, strings.Join(names[:min(len(names), namedTests)], ", "))
}

// namedTests is how many tests a log or an error names.
const namedTests = 5
