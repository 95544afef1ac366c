package verifier

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// gradedOutput is what is kept of a log that is graded, in bytes: half of its beginning and half of its end.
const gradedOutput = 8 << 20

// gradingOf reads the grading among a task's tests; nil when there is none.
func gradingOf(tests []byte) (*grade.Grading, error) {
	tree, err := sandbox.Tree(grade.MaxFile, tests, nil)
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

// graded grades what the tests wrote. That a process got away from them does not matter here: it could write no more into the log than
// the code under test can, and a second mark is refused.
func graded(g *grade.Grading, result sandbox.Result) (map[string]float64, error) {
	if result.DroppedBytes > 0 {
		return nil, fmt.Errorf("%w: the log is %d bytes too long to be graded", errBadReward, result.DroppedBytes)
	}
	components, err := g.Grade(result.Stdout)
	if errors.Is(err, grade.ErrNoEvidence) {
		err = fmt.Errorf("%w; exit %d", err, result.ExitCode)
	}
	return components, err
}
