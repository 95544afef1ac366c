package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Task finds a task of a run by name: one of its configuration, or a query that was submitted to
// it, which is its task with another instruction and, unless it is to be verified, no tests.
func (l Reader) Task(ctx context.Context, run, name string) (runfile.TaskSpec, error) {
	cfg, err := l.Config(ctx, run)
	if err != nil {
		return runfile.TaskSpec{}, err
	}
	task, err := cfg.Task(name)
	if err == nil || !strings.HasPrefix(name, events.QueryPrefix) || !runfile.ValidToken(name) {
		return task, err
	}
	e, err := l.LastOfType(ctx, run, events.QuerySubmittedType, name)
	if errors.Is(err, ErrNotFound) {
		return task, fmt.Errorf("%w: the run has no task and no query %q", runfile.ErrNoTask, name)
	}
	if err != nil {
		return task, err
	}
	query, err := events.Data[events.QuerySubmitted](e)
	if err != nil {
		return task, err
	}
	if task, err = cfg.Task(query.Task); err != nil {
		return task, fmt.Errorf("query %s: %w", name, err)
	}
	return query.TaskSpec(name, task), nil
}
