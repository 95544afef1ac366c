package eventlog

import (
	"context"
	"fmt"
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Ended is a rollout that has its outcome.
type Ended struct {
	events.Rollout
	// Outcome is the fact that scored or failed it.
	Outcome events.Event
	// query, without its instruction, is set where the rollout's task is one.
	query *events.QuerySubmitted
}

// Task is the rollout's task under a configuration of its run: ErrNoTask. A query has the name of
// the task whose files it uses.
func (e *Ended) Task(cfg runfile.RunConfig) (runfile.TaskSpec, error) {
	name := e.Started.Task
	task, err := cfg.Task(name)
	if err == nil || e.query == nil {
		return task, err
	}
	if task, err = cfg.Task(e.query.Task); err != nil {
		return task, fmt.Errorf("query %s: %w", name, err)
	}
	return e.query.TaskSpec(name, task), nil
}

// Rollouts reads a run from its beginning, or from its archive, and gives each rollout when it gets
// its outcome, in the order of the log. Of the events it keeps the chains of rollouts in flight
// only. Rollouts that never got an outcome do not come.
func (l Reader) Rollouts(ctx context.Context, run string) iter.Seq2[Ended, error] {
	return func(yield func(Ended, error) bool) {
		f := openRollouts{chains: map[string][]events.Event{}, queries: map[string]*events.QuerySubmitted{}}
		for e, err := range l.All(ctx, run, 1) {
			if err != nil {
				yield(Ended{}, err)
				return
			}
			ended, over, err := f.take(e)
			if err != nil {
				err = fmt.Errorf("run %s: %s: %w", run, e.ID, err)
			}
			if (over || err != nil) && !yield(ended, err) || err != nil {
				return
			}
		}
	}
}

// openRollouts are the rollouts of a run that have no outcome yet.
type openRollouts struct {
	chains  map[string][]events.Event
	queries map[string]*events.QuerySubmitted
}

func (f *openRollouts) take(e events.Event) (ended Ended, over bool, err error) {
	switch links, open := f.chains[e.Entity]; {
	case e.Type == events.QuerySubmittedType:
		query, err := events.Data[events.QuerySubmitted](e)
		query.Instruction = "" // up to 100 KB that nobody asks for
		f.queries[e.Entity] = &query
		return ended, false, err
	case e.Type == events.RolloutStartedType:
		f.chains[e.Entity] = []events.Event{e}
	case !open || e.Type.Kind() != events.RolloutStartedType.Kind():
		// of another entity, or a remark about a rollout that is over
	case e.Type == events.RolloutScoredType || e.Type == events.RolloutFailedType:
		delete(f.chains, e.Entity)
		r, err := events.FoldRollout(append(links, e))
		return Ended{r, e, f.queries[r.Started.Task]}, true, err
	default:
		f.chains[e.Entity] = append(links, e)
	}
	return ended, false, nil
}
