package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// Observer runs the graded tests of a task without stages to see how each of them ends, with the
// task's solution and without it.
type Observer struct {
	p       *prover
	changes []byte // of the solution
}

// Observe makes an observer ready, and applies the solution in a sandbox. Close it.
func Observe(ctx context.Context, task *Task, m Machine) (*Observer, error) {
	if len(task.Stages) > 0 || task.Solution == nil {
		return nil, fmt.Errorf("task %q: want a solution, and no stages", task.Name)
	}
	p, err := newProver(ctx, task, LintOptions{Machine: m})
	if err != nil {
		return nil, err
	}
	changes, err := p.applySolution(ctx, p.stages[0], nil)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &Observer{p, changes}, nil
}

// Run runs the tests once, in a sandbox of their own. The log is also there where
// nothing shows how they ended.
func (o *Observer) Run(ctx context.Context, solved bool) (report grade.Report, log string, err error) {
	var changes []byte
	if solved {
		changes = o.changes
	}
	spec, err := o.p.spec(ctx, o.p.stages[0], changes)
	if err != nil {
		return report, "", err
	}
	report, outcome, err := verifier.Observe(ctx, spec)
	if failed, ok := errors.AsType[*verifier.Error](err); ok {
		return report, tail(failed.Log), err
	}
	return report, tail(outcome.Log), err
}

// Close removes what the observer has packed.
func (o *Observer) Close() error { return o.p.close() }
