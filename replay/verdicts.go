package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/scorer"
)

// Rescoring is another scorer for the recorded rollouts of a run.
type Rescoring struct {
	Log eventlog.Reader
	Run string
	// Config is the run's, with the other scorer's settings or tests.
	Config runfile.RunConfig
	// Verifiers runs the verifiers of the tasks again, instead of composing what they reported.
	Verifiers bool
	Sandboxes
	// Progress receives how many rollouts of how many are scored.
	Progress func(done, of int)
}

// All scores attempts again, in place. Those that failed before they were scored stay failed; one
// that the new scorer gives no verdict on fails now.
func (r *Rescoring) All(ctx context.Context, attempts []evaluation.Attempt) (notes []string, err error) {
	byID := map[string]*evaluation.Attempt{}
	for i := range attempts {
		byID[attempts[i].Rollout] = &attempts[i]
	}
	done, failed, reason := 0, 0, ""
	verdicts := inOrder(ctx, r.Log.Rollouts(ctx, r.Run), r.Slots,
		func(ctx context.Context, ended eventlog.Ended) (verdict, error) {
			if byID[ended.ID] == nil || !Scored(ended) || ended.Scored == nil && !r.Verifiers {
				return verdict{}, nil // it does not count, or its reward is not the scorer's to give
			}
			return r.one(ctx, ended)
		})
	for v, err := range verdicts {
		if err != nil {
			return nil, err
		}
		a := byID[v.rollout]
		if a == nil {
			continue
		}
		if a.Reward, a.Failed, a.Forfeit = v.reward, v.failed != "", v.forfeit; !a.Failed {
			a.Cause = ""
		}
		if a.Failed {
			if failed++; failed == 1 {
				reason = v.rollout + ": " + v.failed
			}
		}
		done++
		r.Progress(done, len(byID))
	}
	if failed > 0 {
		notes = append(notes,
			fmt.Sprintf("%d rollouts get no verdict by this scorer and count as failed; the first, %s", failed, reason))
	}
	return notes, nil
}

// verdict is a rollout's new reward, or why there is none.
type verdict struct {
	rollout string
	reward  float64
	forfeit string
	failed  string
}

// one scores a rollout again. Where there is nothing that could be scored,
// the recorded reward stays.
func (r *Rescoring) one(ctx context.Context, ended eventlog.Ended) (verdict, error) {
	v := verdict{rollout: ended.ID}
	if ended.Scored != nil {
		v.reward, v.forfeit = ended.Scored.Reward, classOf(ended.Scored.Forfeit)
	} else {
		v.failed = ended.Failed.Message
	}
	var task runfile.TaskSpec
	err := runfile.ErrNoTask
	if r.Verifiers {
		task, err = ended.Task(r.Config)
	}
	var again events.RolloutScored
	switch {
	case errors.Is(err, runfile.ErrNoTask) && ended.Scored == nil:
		return v, nil
	case errors.Is(err, runfile.ErrNoTask): // no tests are asked for, or it is an outsider's, on a task of its own
		again, err = scorer.Recompose(r.Config.Scorer, ended.Outcome)
	case err == nil:
		again, err = scorer.Rerun(ctx, r.Log.Store(), r.scorer(), r.Config, task, &ended.Rollout)
	}
	if errors.Is(err, scorer.ErrNothingToVerify) {
		return v, nil
	}
	_, fact, err := scorer.Outcome(again, err)
	switch fact := fact.(type) {
	case events.RolloutScored:
		v.reward, v.forfeit, v.failed = fact.Reward, classOf(fact.Forfeit), ""
	case events.RolloutFailed:
		v.reward, v.forfeit, v.failed = 0, "", fact.Message
	}
	return v, err
}

// classOf is why a rollout was forfeited, "" where it was not.
func classOf(f *events.Forfeit) string {
	if f == nil {
		return ""
	}
	return f.Class
}
