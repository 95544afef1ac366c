package runfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Levels of separation between a task's tests and the code under test.
const (
	VerifierSeparate = "separate" // in two sandboxes
	// in one, as one user; canaries tell what passes without being right
	VerifierInProcess = "in-process"
	VerifierUnguarded = "in-process-without-canaries" // in one, as one user
)

// Verifiers are the levels of separation, the strongest first.
var Verifiers = []string{VerifierSeparate, VerifierInProcess, VerifierUnguarded}

// ErrSeparation says that a verifier is less apart from the code under test
// than the run's min_verifier.
var ErrSeparation = errors.New("the verifier is not apart from the code under test")

// minVerifier is the least level that the run takes. An evaluation trains nothing, so it takes all
// that it does not refuse.
func (c *RunConfig) minVerifier() string {
	if c.Epochs > 0 {
		return cmp.Or(c.MinVerifier, VerifierUnguarded)
	}
	return cmp.Or(c.MinVerifier, VerifierSeparate)
}

// RequireVerifier answers ErrSeparation, wrapped, where tests of a level are less than the run
// demands; "" is VerifierUnguarded.
func (c *RunConfig) RequireVerifier(level string) error {
	level = cmp.Or(level, VerifierUnguarded)
	if slices.Index(Verifiers, level) <= slices.Index(Verifiers, c.minVerifier()) {
		return nil
	}
	return fmt.Errorf("%w: tests that run %s share their process or sandbox with the code that they test, which can decide its own reward. "+
		"To train on them all the same, say min_verifier: %s in the run file (it is %s now)", ErrSeparation,
		level, level, c.minVerifier())
}

// namedTasks is how many tasks an error names.
const namedTasks = 10

// validateSeparation names the tasks whose tests are less apart than the run demands,
// those of a level together.
func (c *RunConfig) validateSeparation() (errs []error) {
	if !slices.Contains(Verifiers, c.minVerifier()) {
		return nil // that is said elsewhere
	}
	refused := map[string][]string{}
	for _, t := range c.Tasks {
		if (t.HasVerifier() || len(t.Steps) > 0) && slices.Contains(Verifiers, cmp.Or(t.Verifier, VerifierUnguarded)) &&
			c.RequireVerifier(t.Verifier) != nil {
			level := cmp.Or(t.Verifier, VerifierUnguarded)
			refused[level] = append(refused[level], t.Name)
		}
	}
	for _, level := range Verifiers {
		names := refused[level]
		if len(names) == 0 {
			continue
		}
		more := ""
		if n := len(names) - namedTasks; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		errs = append(errs, fmt.Errorf("tasks %.80q%s: %w", names[:min(len(names), namedTasks)], more,
			c.RequireVerifier(level)))
	}
	return errs
}
