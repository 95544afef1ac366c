// Package scorer runs a task's verifier over the final workspace, in a fresh sandbox. Where a task has none, users'
// feedback is the reward.
package scorer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// Options of the service.
type Options struct {
	// Slots is how many verifiers run at once.
	Slots          int
	AllowInsecure  bool
	ToolchainCache string
	// Keys are shown to judges.
	Keys fleet.Keys
	// Snapshots holds unpacked snapshots that verifiers share; nil gives each a copy.
	Snapshots *sandbox.Snapshots
}

// Service consumes rollout_finished, step_finished and feedback_recorded, and emits rollout_scored, step_scored, rollout_retried and rollout_failed.
type Service struct {
	log  *eventlog.Log
	opts Options
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env, opts Options) error {
	var err error
	if opts.Snapshots, err = sandbox.OpenSnapshots(filepath.Join(env.Dir, "verifier-snapshots"), sandbox.RoleVerifier, sandbox.SnapshotBytes); err != nil {
		return err
	}
	s := &Service{log: env.Log, opts: opts}
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.Scorer, Slots: opts.Slots, Handle: s.Handle})
}

// Handle scores the rollout of the input, which has finished, or a step of it, or got feedback, unless it has its outcome already.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	r, err := s.log.Rollout(ctx, m.Event.Run, m.Event.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, runtime.Permanent(err)
	}
	if err != nil || r.Over() || r.Finished == nil && r.StepToScore() == nil {
		return nil, err
	}
	cfg, err := s.log.Config(ctx, r.Run)
	if err != nil {
		return nil, err
	}
	task, err := s.log.Task(ctx, r.Run, r.Started.Task)
	unknown := errors.Is(err, events.ErrNoTask)
	switch {
	case unknown && !events.External(r.ID):
		fact, err := r.Fail(events.StageScorer, events.ClassInternal, err)
		return []events.Event{fact}, err
	case err != nil && !unknown:
		return nil, err
	case r.StepToScore() != nil:
		return s.scoreStep(ctx, cfg, task, &r)
	case events.External(r.ID) && len(task.Steps) > 0 && r.Finished.Workspace != nil:
		fact, err := r.Fail(events.StageScorer, events.ClassVerifier, fmt.Errorf("task %s has steps, which are scored one by one in Rondo's own rollouts alone", task.Name))
		return []events.Event{fact}, err
	case !task.HasVerifier(): // as tasks of outsiders are that the run does not know
		return s.byFeedback(ctx, task, &r)
	case events.External(r.ID) && r.Finished.Workspace == nil && cfg.Has(events.FeatureFeedbackRewards):
		return s.byFeedback(ctx, task, &r) // there is nothing to verify; who made the rollout may still score it first
	case m.Event.Type != events.RolloutFinishedType:
		return nil, nil // a remark: the verifier gives the reward
	case events.External(r.ID) && r.Finished.Workspace == nil:
		return nil, nil // there is nothing to verify: who made the rollout scores it
	}
	return s.verify(ctx, task, &r)
}

// verify states the verifier's verdict.
func (s *Service) verify(ctx context.Context, task events.TaskSpec, r *events.Rollout) ([]events.Event, error) {
	cfg, err := s.log.Config(ctx, r.Run)
	if err != nil {
		return nil, err
	}
	scored, err := s.scoreWith(ctx, cfg, task, r, s.judge)
	if err == nil {
		fact, err := r.Next(events.RolloutScoredType, "0", scored)
		return []events.Event{fact}, err
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return failed(cfg, r, err)
}

// failed ends the rollout when its verifier gave no verdict, and tries again when the machinery failed.
func failed(cfg events.RunConfig, r *events.Rollout, cause error) ([]events.Event, error) {
	if v := NoVerdict(cause); v != nil {
		fact, err := r.Fail(events.StageScorer, events.ClassVerifier, withLog(v))
		return []events.Event{fact}, err
	}
	fact, final, err := r.Retry(cfg.Limits, events.StageScorer, class(cause), cause)
	if err != nil || final {
		return []events.Event{fact}, err
	}
	return []events.Event{fact}, runtime.RetryAfter(cause, time.Second<<min(r.Tries, 5))
}

// quoted is how much of a verifier's log a failure repeats, in bytes.
const quoted = 1000

// withLog adds the end of the verifier's log, where it most often says what went wrong.
func withLog(v *verifier.Error) error {
	tail := strings.TrimSpace(string(v.Log[max(0, len(v.Log)-quoted):]))
	if tail == "" {
		return v
	}
	return fmt.Errorf("%w; its log ends: %s", v, strings.ToValidUTF8(tail, "\uFFFD"))
}

// class names the cause of a failed try.
func class(cause error) string {
	for _, lost := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrKey, storage.ErrTooLarge} {
		if errors.Is(cause, lost) {
			return events.ClassObject
		}
	}
	var failed *inference.Failure
	if errors.As(cause, &failed) {
		return failed.Class
	}
	return events.ClassSandbox
}

// scoreWith verifies, composes the reward, and stores what the verifier wrote.
func (s *Service) scoreWith(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, r *events.Rollout, judge judging) (events.RolloutScored, error) {
	scored, log, err := s.verdict(ctx, cfg, task, r, judge)
	if err != nil {
		return scored, err
	}
	scored.Log, err = s.keep(ctx, log)
	return scored, err
}

// judging gives the score of a rollout's change and where the judge's answer is.
type judging func(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, r *events.Rollout, w work) (float64, storage.Ref, error)

// verdict runs the verifier and composes the reward. What the verifier wrote is not stored.
func (s *Service) verdict(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, r *events.Rollout, judge judging) (scored events.RolloutScored, log []byte, err error) {
	spec, err := s.spec(ctx, cfg, task, r.ID, r.Finished.Workspace)
	if err != nil {
		return scored, nil, err
	}
	outcome, flags, err := s.outcome(ctx, task, r, spec)
	if err != nil {
		return scored, nil, err
	}
	left := work{snapshot: spec.Snapshot, change: spec.Changes}
	if cfg.Scorer.Hygiene() || cfg.Scorer.Judge != nil {
		if left.brought, err = s.brought(ctx, r, spec.Snapshot); err != nil {
			return scored, nil, err
		}
	}
	components, err := measure(cfg.Scorer, r, left, outcome.Components)
	if err != nil {
		return scored, nil, err
	}
	if cfg.Scorer.Judge != nil {
		score, answer, err := judge(ctx, cfg, task, r, left)
		if err != nil {
			return scored, nil, err
		}
		components[events.JudgeComponent], scored.Judgement = score, &answer
	}
	reward, err := cfg.Scorer.Reward(components)
	if err != nil {
		return scored, nil, &verifier.Error{Class: verifier.ClassBadReward, Err: err, Log: outcome.Log}
	}
	return events.RolloutScored{
		Reward: reward, Components: components, Judgement: scored.Judgement, ExitCode: outcome.ExitCode,
		TaskDigest: task.Digest, DurationMS: float64(outcome.Duration) / float64(time.Millisecond),
		Flags: flags, Isolation: outcome.Isolation, Filesystem: outcome.Filesystem, User: outcome.User, Build: build(),
		Trajectory: r.Finished.Trajectory, TextOnly: r.Finished.TextOnly,
	}, outcome.Log, nil
}

// runTests runs a task's tests, over the snapshot that other verifiers use, too.
func (s *Service) runTests(ctx context.Context, task events.TaskSpec, spec verifier.Spec) (outcome verifier.Outcome, err error) {
	spec.From, err = s.opts.Snapshots.Use(ctx, task.Snapshot.SHA256, func(context.Context) ([]byte, error) { return spec.Snapshot, nil })
	if err != nil {
		return outcome, fmt.Errorf("task %s: %w", task.Name, err)
	}
	defer spec.From.Release()
	return verifier.Run(ctx, spec)
}

// build is the version of this program.
var build = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
})

// spec says what to score of a rollout: a workspace, nil for the task's snapshot.
func (s *Service) spec(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, rollout string, workspace *storage.Ref) (verifier.Spec, error) {
	spec := verifier.Spec{
		Name: rollout, Workdir: task.Workdir, Protected: task.Protected, Env: map[string]string{},
		Timeout: time.Duration(task.VerifierTimeout), AllowInsecure: s.opts.AllowInsecure,
		Limits: sandbox.Limits{MemoryBytes: int64(task.MemoryMB) << 20},
	}
	if s.opts.AllowInsecure { // the run may demand more than the operator does, and never less
		spec.MinIsolation = cfg.MinIsolation
	}
	for _, hook := range task.Collect {
		spec.Collect = append(spec.Collect, verifier.Hook{Command: hook.Command, Timeout: time.Duration(hook.Timeout)})
	}
	maps.Copy(spec.Env, task.Env)
	maps.Copy(spec.Env, task.VerifierEnv)
	mounts, env, err := sandbox.Toolchains(ctx, task.Toolchains, s.opts.ToolchainCache)
	if err != nil {
		return spec, err
	}
	spec.Mounts = mounts
	if task.Image != "" {
		image, err := sandbox.OpenImage(ctx, task.Image, task.ImageID, s.opts.ToolchainCache)
		if err != nil {
			return spec, err
		}
		spec.Root = image.Root
	}
	maps.Copy(spec.Env, env) // last: a task may not change where its toolchain is
	get := func(what string, ref storage.Ref) (data []byte) {
		if err == nil {
			if data, err = storage.GetBlob(ctx, s.log.Store(), ref); err != nil {
				err = fmt.Errorf("%s of task %s: %w", what, task.Name, err)
			}
		}
		return data
	}
	spec.Snapshot = get("snapshot", task.Snapshot)
	if task.HasVerifier() {
		spec.Tests = get("tests", task.Tests)
	}
	if workspace != nil {
		spec.Changes = get("workspace", *workspace)
	}
	return spec, err
}
