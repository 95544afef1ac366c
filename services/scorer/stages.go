package scorer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// scoreStage states the verdict on the stage that a rollout has ended, and makes the
// workspace for the next one.
func (s *Service) scoreStage(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]events.Event, error) {
	ended := *r.StepToScore()
	scored, log, err := s.stageVerdict(ctx, cfg, task, r, ended.StepFinished)
	if err == nil {
		err = outage.Outlast(ctx, func() (err error) { scored.Log, err = s.keep(ctx, log); return err })
	}
	if err == nil {
		if scored.Workspace, scored.Forfeit, err = s.nextWorkspace(ctx, cfg, task, r, scored); scored.Forfeit != nil {
			scored.Flags = withFlag(scored.Flags, *scored.Forfeit)
		}
	}
	if err == nil {
		fact, err := r.Next(events.StepScoredType, events.Ordinal(ended.Step), scored)
		return []events.Event{fact}, err
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return failed(cfg, r, err)
}

// stageVerdict runs the tests of a stage over the workspace that its agent has left. What
// they wrote is not stored.
func (s *Service) stageVerdict(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	ended events.StepFinished) (scored events.StepScored, log []byte, err error) {
	if ended.Step >= len(task.Steps) {
		return scored, nil,
			fmt.Errorf("rollout %s was in stage %d, but task %s has %d: score it with tests for all of its stages",
				r.ID, ended.Step+1, task.Name, len(task.Steps))
	}
	spec, err := s.spec(ctx, cfg, task.InStep(ended.Step), r.ID, ended.Workspace)
	if err != nil {
		return scored, nil, err
	}
	outcome, forfeit, err := s.test(ctx, cfg, task.InStep(ended.Step), r, spec)
	if err != nil {
		return scored, nil, err
	}
	begun, err := s.begun(ctx, r, ended.Step)
	if err != nil {
		return scored, nil, err
	}
	of := r.Turns[min(r.StepBegin(ended.Step), len(r.Turns)):min(ended.Turns, len(r.Turns))]
	flags, err := flagsOf(spec.Changes, begun, r, of, outcome, forfeit)
	if err != nil {
		return scored, nil, err
	}
	return events.StepScored{
		Step: ended.Step, Components: outcome.Components, ExitCode: outcome.ExitCode,
		DurationMS: float64(outcome.Duration) / float64(time.Millisecond),
		Flags:      flags, Forfeit: forfeit, Isolation: outcome.Isolation, Filesystem: outcome.Filesystem,
		User: outcome.User, Build: build(), Verifier: outcome.Verifier,
		Tests: outcome.Tests,
	}, outcome.Log, nil
}

// keep stores what a verifier wrote; nil where that is nothing.
func (s *Service) keep(ctx context.Context, log []byte) (*storage.Ref, error) {
	if len(log) == 0 {
		return nil, nil
	}
	ref, err := storage.PutBlob(ctx, s.store, log)
	if err != nil {
		return nil, fmt.Errorf("store verifier log: %w", err)
	}
	return &ref, nil
}

// outcome is the verifier's for a whole rollout. The verdicts on the stages of a task that has
// several are on the log: they make it, and the verifier is not asked again.
func (s *Service) outcome(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	spec verifier.Spec) (verifier.Outcome, []string, *events.Forfeit, error) {
	if len(task.Steps) == 0 {
		outcome, forfeit, err := s.test(ctx, cfg, task, r, spec)
		if err != nil {
			return outcome, nil, nil, err
		}
		flags, err := flagsOf(spec.Changes, nil, r, r.Taken(), outcome, forfeit)
		return outcome, flags, forfeit, err
	}
	components, err := events.ComposeSteps(task, r.Steps)
	if err != nil {
		return verifier.Outcome{}, nil, nil, &verifier.Error{Class: verifier.ClassBadReward,
			Err: fmt.Errorf("steps of task %s: %w", task.Name, err)}
	}
	last := r.Steps[len(r.Steps)-1].Verdict
	outcome := verifier.Outcome{Components: components, ExitCode: last.ExitCode, Isolation: last.Isolation,
		Filesystem: last.Filesystem, User: last.User}
	var flags []string
	outcome.Verifier = last.Verifier
	for _, stage := range r.Steps {
		if slices.Index(runfile.Verifiers, stage.Verdict.Verifier) > slices.Index(runfile.Verifiers, outcome.Verifier) {
			outcome.Verifier = stage.Verdict.Verifier
		}
		outcome.Duration += time.Duration(float64(stage.Verdict.DurationMS * float64(time.Millisecond)))
		flags = append(flags, stage.Verdict.Flags...)
	}
	slices.Sort(flags)
	flags = slices.Compact(flags)
	return outcome, flags[:min(len(flags), maxFlags)], last.Forfeit, nil // a forfeit ends the rollout
}

// maxFlags bounds the flags of a rollout, as its schema does.
const maxFlags = 50

// stagesAgain is a rollout with the verdicts that task's tests give its stages now. A stage stays
// ended where it was, whatever its verdict is.
func (s *Service) stagesAgain(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (*events.Rollout, error) {
	again := *r
	again.Steps = slices.Clone(r.Steps)
	for i := range again.Steps {
		scored, _, err := s.stageVerdict(ctx, cfg, task, r, again.Steps[i].StepFinished)
		if err != nil {
			return r, err
		}
		again.Steps[i].Verdict = &scored
	}
	return &again, nil
}

// stages compares the recorded verdicts on stages with those of now.
func (c *comparison) stages(recorded, now []events.EndedStep) {
	for i, stage := range recorded {
		if stage.Verdict == nil || now[i].Verdict == nil {
			continue
		}
		name := fmt.Sprintf("stage %d ", stage.Step)
		c.value(name+"exit_code", fmt.Sprint(stage.Verdict.ExitCode), fmt.Sprint(now[i].Verdict.ExitCode))
		c.components(name, stage.Verdict.Components, now[i].Verdict.Components)
		c.separation(name, stage.Verdict.Verifier, now[i].Verdict.Verifier)
	}
}
