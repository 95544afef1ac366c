package scorer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// ErrNothingToVerify means that the rollout did not finish, or an outsider made it and left no
// workspace behind, or its task has no verifier.
var ErrNothingToVerify = errors.New("there is nothing to verify")

// Rerun verifies the final workspace of a recorded rollout once more, with task's tests, and
// composes the reward as cfg says. The verdict is what the service would have stated, and its log
// is stored. Where the task has no verifier, recorded feedback is composed again.
//
// Where the verifier gives no verdict, the error is one that NoVerdict knows: it
// would be the same again.
func Rerun(ctx context.Context, store storage.Store, opts Options, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (events.RolloutScored, error) {
	if err := verifiable(task, r); err == nil {
		s := &Service{store: store, opts: opts}
		if r, err = s.stagesAgain(ctx, cfg, task, r); err != nil {
			return events.RolloutScored{}, err
		}
		return s.scoreWith(ctx, cfg, task, r, recorded)
	} else if r.Scored == nil || task.HasVerifier() {
		return events.RolloutScored{}, err
	}
	scored := *r.Scored
	var err error
	scored.Reward, err = cfg.Scorer.Reward(scored.Components)
	return scored, err
}

// recorded is the judgement that is on the log: another one could be another, and costs.
func recorded(_ context.Context, _ runfile.RunConfig, _ runfile.TaskSpec, r *events.Rollout,
	_ work) (float64, storage.Ref, error) {
	if r.Scored == nil || r.Scored.Judgement == nil {
		return 0, storage.Ref{}, &verifier.Error{Class: verifier.ClassBadReward,
			Err: errors.New("no judgement is recorded")}
	}
	return r.Scored.Components[runfile.JudgeComponent], *r.Scored.Judgement, nil
}

// verifiable is ErrNothingToVerify where a verifier has nothing to look at.
func verifiable(task runfile.TaskSpec, r *events.Rollout) error {
	if r.Finished == nil || !task.HasVerifier() || unverified(r) || events.External(r.ID) && len(task.Steps) > 0 {
		return fmt.Errorf("rollout %s: %w", r.ID, ErrNothingToVerify)
	}
	return nil
}

// NoVerdict is the cause where a verifier gave no verdict and would give none again; nil
// where the machinery failed.
func NoVerdict(err error) *verifier.Error {
	var v *verifier.Error
	if errors.As(err, &v) && v.Class != verifier.ClassSandbox {
		return v
	}
	return nil
}

// Outcome is the payload of the fact that the service states of what Again gave: rollout_scored, or
// rollout_failed where there is no verdict. Any other error is given back.
func Outcome(scored events.RolloutScored, err error) (events.Type, any, error) {
	switch v := NoVerdict(err); {
	case err == nil:
		return events.RolloutScoredType, scored, nil
	case v != nil:
		return events.RolloutFailedType, events.NewRolloutFailed(events.StageScorer, events.ClassVerifier,
			withLog(v)), nil
	case errors.Is(err, runfile.ErrNoComponent):
		return events.RolloutFailedType, events.NewRolloutFailed(events.StageScorer, events.ClassVerifier, err), nil
	}
	return "", nil, err
}

// Recompose is the verdict of a scored fact with its recorded components composed as s says. What
// an outsider scored stays as it is.
func Recompose(s runfile.Scoring, e events.Event) (events.RolloutScored, error) {
	scored, err := events.Data[events.RolloutScored](e)
	if err != nil || pipeline.OriginalSource(e) != topology.Scorer {
		return scored, err
	}
	scored.Components = s.Derive(scored.Components)
	compose := s.Reward
	if scored.Forfeit != nil {
		scored.Components, compose = s.Unreported(scored.Components), s.Forfeited
	}
	if scored.Reward, err = compose(scored.Components); err != nil {
		return scored, fmt.Errorf("rollout %s: %w", e.Entity, err)
	}
	return scored, nil
}
