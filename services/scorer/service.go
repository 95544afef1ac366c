// Package scorer runs a task's verifier over the final workspace, in a fresh sandbox. Where a task
// has none, users' feedback is the reward.
package scorer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
	"github.com/rondo-rl/rondo/tasks"
)

// Options of the service.
type Options struct {
	// Slots is how many verifiers run at once.
	Slots int
	tasks.Machine
	// Keys are shown to judges.
	Keys fleet.Keys
	// Snapshots holds unpacked snapshots that verifiers share; nil gives each a copy.
	Snapshots *sandbox.Snapshots
	// UnderTestSnapshots are the same for tasks whose tests are separate.
	UnderTestSnapshots *sandbox.Snapshots
}

// partsBytes bounds what a scorer keeps on its disk of large changes of workspaces: it
// reads each several times.
const partsBytes = 2 << 30

// Service consumes rollout_finished, rollout_rated, step_finished and feedback_recorded, and emits
// rollout_scored, step_scored, rollout_retried and rollout_failed.
type Service struct {
	store    storage.Store
	opts     Options
	parts    *parts.Cache // nil for none
	controls controls

	baselines verifier.Baselines
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env, opts Options) error {
	var err error
	if opts.Snapshots, err = sandbox.OpenSnapshots(filepath.Join(env.Dir, "verifier-snapshots"), sandbox.RoleVerifier,
		sandbox.SnapshotBytes); err != nil {
		return err
	}
	if opts.UnderTestSnapshots, err = sandbox.OpenSnapshots(filepath.Join(env.Dir, "under-test-snapshots"),
		sandbox.RoleUnderTest, sandbox.SnapshotBytes); err != nil {
		return err
	}
	cache, err := parts.OpenCache(filepath.Join(env.Dir, "verifier-parts"), partsBytes)
	if err != nil {
		return err
	}
	s := &Service{store: env.Log.Store(), opts: opts, parts: cache}
	return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Scorer, Slots: opts.Slots, Handle: s.Handle,
		Stage: events.StageScorer})
}

// Handle scores the rollout of the input, which has finished, or a stage of it, or got feedback,
// unless it has its outcome already.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	r, err := m.Log.Rollout(ctx, m.Event.Run, m.Event.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, pipeline.Permanent(err)
	}
	if err != nil || r.Over() || r.Finished == nil && r.StepToScore() == nil {
		return nil, err
	}
	cfg, err := m.Log.Config(ctx, r.Run)
	if err != nil {
		return nil, err
	}
	task, err := m.Log.Task(ctx, r.Run, r.Started.Task)
	unknown := errors.Is(err, runfile.ErrNoTask)
	switch {
	case unknown && !events.External(r.ID):
		fact, err := r.Fail(events.StageScorer, events.ClassInternal, err)
		return []events.Event{fact}, err
	case err != nil && !unknown:
		return nil, err
	case r.StepToScore() != nil:
		return s.scoreStage(ctx, cfg, task, &r)
	case events.External(r.ID) && len(task.Steps) > 0 && r.Finished.Workspace != nil:
		fact, err := r.Fail(events.StageScorer, events.ClassVerifier,
			fmt.Errorf("task %s has stages, which are scored one by one in Rondo's own rollouts alone", task.Name))
		return []events.Event{fact}, err
	case cfg.Scorer.Function != "" && r.Rated == nil:
		return nil, nil // a user's worker takes it
	case r.Rated != nil && r.Rated.Failed != "":
		fact, err := r.Fail(events.StageEnvironment, events.ClassWorker, errors.New(r.Rated.Failed))
		return []events.Event{fact}, err
	case (r.Rated != nil || len(r.Observed) > 0) &&
		(!task.HasVerifier() || events.External(r.ID) && r.Finished.Workspace == nil):
		return byWorkers(cfg, task, &r)
	case !task.HasVerifier(): // as tasks of outsiders are that the run does not know
		return byFeedback(ctx, m.Log, cfg, task, &r)
	case unverified(&r) && cfg.Has(runfile.FeatureFeedbackRewards):
		// there is nothing to verify; who made the rollout may still score it first
		return byFeedback(ctx, m.Log, cfg, task, &r)
	case m.Event.Type != events.RolloutFinishedType && m.Event.Type != events.RolloutRatedType:
		return nil, nil // a remark: the verifier gives the reward
	case unverified(&r):
		return nil, nil // there is nothing to verify: who made the rollout scores it
	}
	return s.verify(ctx, cfg, task, &r)
}

// unverified reports whether a harness has ended its rollout without anything for the verifier.
func unverified(r *events.Rollout) bool {
	return events.External(r.ID) && r.Finished.Workspace == nil && !r.Finished.Verify
}

// verify states the verifier's verdict.
func (s *Service) verify(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]events.Event, error) {
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

// failed ends the rollout when its verifier gives no verdict whatever is verified, and tries again
// when the machinery failed. What comes of an outage waits.
func failed(cfg runfile.RunConfig, r *events.Rollout, cause error) ([]events.Event, error) {
	if outage.KindOf(cause) != "" {
		return nil, cause
	}
	if v := NoVerdict(cause); v != nil {
		fact, err := r.Fail(events.StageScorer, events.ClassVerifier, withLog(v))
		return []events.Event{fact}, err
	}
	if errors.Is(cause, errTaskInProcess) {
		fact, err := r.Fail(events.StageScorer, events.ClassSeparation, cause)
		return []events.Event{fact}, err
	}
	fact, final, err := r.Retry(cfg.Limits, events.StageScorer, class(cause), cause)
	if err != nil || final {
		return []events.Event{fact}, err
	}
	return []events.Event{fact}, pipeline.RetryAfter(cause, pipeline.NextTry.Delay(r.Tries+1))
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
	if storage.IsUnusable(cause) {
		return events.ClassObject
	}
	if errors.Is(cause, runfile.ErrSeparation) {
		return events.ClassSeparation
	}
	var failed *inference.Failure
	if errors.As(cause, &failed) {
		return failed.Class
	}
	return events.ClassSandbox
}

// scoreWith verifies, composes the reward, and stores what the verifier wrote.
func (s *Service) scoreWith(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	judge judging) (events.RolloutScored, error) {
	scored, log, err := s.verdict(ctx, cfg, task, r, judge)
	if err != nil {
		return scored, err
	}
	err = outage.Outlast(ctx, func() (err error) { scored.Log, err = s.keep(ctx, log); return err })
	return scored, err
}

// judging gives the score of a rollout's change and where the judge's answer is.
type judging func(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	w work) (float64, storage.Ref, error)

// verdict runs the verifier and composes the reward. What the verifier wrote is not stored.
func (s *Service) verdict(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	judge judging) (scored events.RolloutScored, log []byte, err error) {
	spec, err := s.spec(ctx, cfg, task, r.ID, r.Finished.Workspace)
	if err != nil {
		return scored, nil, err
	}
	if task.Transcript {
		if spec.Transcript, err = s.transcript(ctx, r); err != nil {
			return scored, nil, err
		}
	}
	outcome, flags, forfeit, err := s.outcome(ctx, cfg, task, r, spec)
	if err != nil {
		return scored, nil, err
	}
	if forfeit != nil {
		return s.forfeited(ctx, cfg, task, r, tested{outcome, flags, forfeit, spec})
	}
	left := work{snapshot: spec.Snapshot, change: spec.Changes}
	if cfg.Scorer.Hygiene() || cfg.Scorer.Judge != nil {
		if left.brought, err = s.brought(ctx, r, spec.Snapshot); err != nil {
			return scored, nil, err
		}
	}
	components, err := measure(cfg.Scorer, r, left, withWorkers(outcome.Components, r))
	if err != nil {
		return scored, nil, err
	}
	if cfg.Scorer.Judge != nil {
		score, answer, err := judge(ctx, cfg, task, r, left)
		if err != nil {
			return scored, nil, err
		}
		components[runfile.JudgeComponent], scored.Judgement = score, &answer
	}
	reward, err := cfg.Scorer.Reward(components)
	if err != nil {
		return scored, nil, &verifier.Error{Class: verifier.ClassBadReward, Err: err, Log: outcome.Log}
	}
	judgement := scored.Judgement
	scored = stated(task, r, outcome, flags)
	scored.Reward, scored.Components, scored.Judgement = reward, components, judgement
	return scored, outcome.Log, nil
}

// stated is what a rollout's verdict says beside its reward.
func stated(task runfile.TaskSpec, r *events.Rollout, outcome verifier.Outcome, flags []string) events.RolloutScored {
	return events.RolloutScored{
		ExitCode: outcome.ExitCode, TaskDigest: task.Digest,
		DurationMS: float64(outcome.Duration) / float64(time.Millisecond),
		Flags:      flags, Isolation: outcome.Isolation, Filesystem: outcome.Filesystem,
		User: outcome.User, Build: build(),
		Verifier: outcome.Verifier,
		Tests:    outcome.Tests, Trajectory: r.Finished.Trajectory, TextOnly: r.Finished.TextOnly,
	}
}

// errTaskInProcess says that no machine would do: it is the task itself that the run does not take.
var errTaskInProcess = errors.New(`the task does not say verifier = "separate"`)

// runTests runs a task's tests, over the snapshot that other verifiers use, too. The run's
// min_verifier holds for what the task says, and for what became of it on this machine.
func (s *Service) runTests(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	spec verifier.Spec) (outcome verifier.Outcome, err error) {
	if err := cfg.RequireVerifier(task.Verifier); err != nil {
		return outcome, fmt.Errorf("task %s: %w: %w", task.Name, errTaskInProcess, err)
	}
	snapshots := s.opts.Snapshots
	if spec.Separate {
		snapshots = s.opts.UnderTestSnapshots
	}
	spec.From, err = snapshots.Use(ctx, task.Snapshot.SHA256,
		func(context.Context) (io.ReadCloser, error) { return spec.Snapshot.Open() })
	if err != nil {
		return outcome, fmt.Errorf("task %s: %w", task.Name, err)
	}
	defer spec.From.Release()
	spec.Baselines, spec.Key = &s.baselines, testsKey(task)
	if outcome, err = verifier.Run(ctx, spec); err == nil && cfg.MinVerifier != "" {
		err = cfg.RequireVerifier(outcome.Verifier)
	}
	return outcome, err
}

// testsKey says what a task's tests are run over and in.
func testsKey(task runfile.TaskSpec) string {
	return fmt.Sprint(task.Digest, task.Snapshot.SHA256, task.Tests.SHA256, task.ImageID,
		task.VerifierImageID, task.VerifierTimeout)
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
func (s *Service) spec(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, rollout string,
	workspace *storage.Ref) (verifier.Spec, error) {
	boxes, err := tasks.SandboxesOf(ctx, task, s.opts.Machine, s.store)
	if err != nil {
		return verifier.Spec{}, err
	}
	spec, err := boxes.Verifier(ctx, rollout)
	if err != nil {
		return spec, err
	}
	if s.opts.AllowInsecure { // the run may demand more than the operator does, and never less
		spec.MinIsolation = cfg.MinIsolation
	}
	from := func(what string, ref storage.Ref) sandbox.Source {
		return func() (io.ReadCloser, error) {
			opened, _, err := parts.Open(ctx, s.store, ref, s.parts)
			if err != nil {
				err = fmt.Errorf("%s of task %s: %w", what, task.Name, err)
			}
			return opened, err
		}
	}
	spec.Snapshot = from("snapshot", task.Snapshot)
	if task.HasVerifier() {
		if spec.Tests, err = storage.GetBlob(ctx, s.store, task.Tests); err != nil { // at most sandbox.MaxArchive
			err = fmt.Errorf("tests of task %s: %w", task.Name, err)
		}
	}
	if workspace != nil {
		spec.Changes = from("workspace", *workspace)
	}
	return spec, err
}
