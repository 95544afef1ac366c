package tasks

import (
	"errors"
	"fmt"
)

// Refused are the reports on tasks that could not be loaded, from the error of LoadDir or LoadPack.
// Errors that are of no task are left out.
func Refused(err error) (reports []Report) {
	switch e := any(err).(type) { // not errors.As: each part of a joined error is asked for
	case *taskError:
		report := Report{Task: e.task, Verdict: VerdictUnsound, Problems: []string{e.err.Error()},
			Nothing: []Attempt{}, Solution: []Attempt{}}
		report.unsupported(e.err)
		return []Report{report}
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			reports = append(reports, Refused(part)...)
		}
	case interface{ Unwrap() error }:
		return Refused(e.Unwrap())
	}
	return reports
}

// unsupported notes what of the task cannot be honoured, if that is what an error says.
func (r *Report) unsupported(err error) {
	if field := (*Unsupported)(nil); errors.As(err, &field) {
		r.Verdict, r.Field = VerdictUnsupported, field.Field
	}
}

// taskError says which task could not be loaded.
type taskError struct {
	task string // "" where its folder is the whole pack
	err  error
}

func (e *taskError) Error() string {
	if e.task == "" {
		return "task: " + e.err.Error()
	}
	return fmt.Sprintf("task %q: %v", e.task, e.err)
}

func (e *taskError) Unwrap() error { return e.err }
