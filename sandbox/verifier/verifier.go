// Package verifier scores a workspace: it lays the task's snapshot and the agent's changes out in a
// fresh sandbox, runs the task's tests there, and reads the reward that they wrote. The tests are
// nowhere but in that sandbox, and unchangeable in it.
package verifier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// Paths inside the sandbox, as task packs of the Harbor format expect them.
const (
	TestsFolder = "/tests"
	LogsFolder  = "/logs/verifier"

	TranscriptFolder = "/transcript"
	TranscriptFile   = TranscriptFolder + "/messages.json"
)

// TranscriptVariable names the file in the environment of the tests.
const TranscriptVariable = "RONDO_TRANSCRIPT"

// NoTranscript is a transcript of nothing, for tests that expect one where there was no rollout.
var NoTranscript = []byte(`{"messages":[]}`)

// DefaultTimeout is how long tests may run.
const DefaultTimeout = 600 * time.Second

// Spec says what to score. Snapshot and Tests are archives of sandbox.Pack, Changes of
// Sandbox.Changes (nil: none). Protected are patterns of paths that stay as the snapshot has
// them, beside the package's own. Collect are commands that run over the agent's workspace before
// the tests' sandbox is made.
type Spec struct {
	Name          string
	Workdir       string
	Root          string // as in sandbox.Spec
	TestsRoot     string // the root of the sandbox in which the tests run, where it is another one
	Snapshot      sandbox.Source
	From          *sandbox.Snapshot // Snapshot made ready for sandboxes of sandbox.RoleVerifier; nil unpacks it
	Changes       sandbox.Source
	Tests         []byte
	Protected     []string
	Collect       []Hook
	Env           map[string]string
	Mounts        []sandbox.Mount
	Timeout       time.Duration
	Limits        sandbox.Limits
	Disk          string // as in sandbox.Spec
	AllowInsecure bool
	MinIsolation  string // as in sandbox.Spec
	// Separate keeps the workspace out of the tests' sandbox: it is in one of
	// sandbox.RoleUnderTest, which From is for then, and the tests run commands there with
	// under-test. UnderTestEnv are the variables of those commands. Where no sandbox has namespaces
	// the tests run in process all the same; Outcome.Verifier tells.
	Separate     bool
	UnderTestEnv map[string]string
	// Transcript is what was said in the rollout, as JSON: the tests find it at TranscriptFile,
	// which nobody inside can change. nil: there is no such file.
	Transcript []byte

	// Baselines remember what the tests come to over the snapshot, by Key, which says what snapshot
	// and sandbox are; nil runs them again each time.
	Baselines *Baselines
	Key       string

	reporting reporting      // of graded tests, as graded makes it
	standIn   bool           // the tests expect the command under-test, and run in process
	random    *mathrand.Rand // decides about further runs of graded tests; nil: one of its own
}

// sandbox describes one of the sandboxes that scoring takes. Its commands
// bring their variables along.
func (s Spec) sandbox(role sandbox.Role) sandbox.Spec {
	root := s.Root
	if role == sandbox.RoleVerifier {
		root = cmp.Or(s.TestsRoot, root)
	}
	return sandbox.Spec{
		Name: s.Name, Role: role, Workdir: s.Workdir, Root: root, Mounts: s.Mounts, Limits: s.Limits, Disk: s.Disk,
		AllowInsecure: s.AllowInsecure, MinIsolation: s.MinIsolation,
	}
}

// Outcome is a score. Components are all the numbers that the tests reported,
// with the reward among them.
type Outcome struct {
	Reward     float64
	Components map[string]float64
	ExitCode   int    // of the tests; it is not the reward
	Log        []byte // what the tests wrote, the standard output first
	Duration   time.Duration
	// Restored are protected paths that the changes touched, Links links of theirs that led out of
	// the workspace. The tests met neither.
	Restored, Links []string
	// LeftBehind: a process got away from the tests, though not for as long as it would have
	// taken to write the reward.
	LeftBehind bool
	// Isolation, Filesystem and User are those of the sandbox. With sandbox.UserOwn the tests were
	// another user of the host than agents' processes.
	Isolation, Filesystem, User string
	// Verifier is the separation that there was: Separate, InProcess or Unguarded.
	Verifier string
	// Tests are the graded ones, nil where the tests wrote a reward.
	Tests *grade.Tests

	grading *grade.Grading // nil where the tests wrote a reward
	report  grade.Report
	unkept  []string // tests that only seem to be kept
}

// Classes of Error.
const (
	ClassTimeout   = "timeout"    // the tests did not end in time
	ClassNoReward  = "no_reward"  // the tests ended without writing a reward
	ClassBadReward = "bad_reward" // what they wrote is not a reward
	ClassTampered  = "tampered"   // a process that the tests left behind could have written the reward
	ClassMemory    = "oom"        // the tests ran out of memory and wrote no reward
	ClassApply     = "apply"      // the changes do not fit over the snapshot
	ClassControl   = "control"    // the tests pass over the untouched snapshot, so that they show nothing
	ClassSetup     = "setup"      // what a stage brings along does not fit over the workspace, or its setup.sh failed
	ClassSandbox   = "sandbox"    // the sandbox failed; to try again may help
)

// Error says why there is no score, or why a stage cannot begin. Whose doing that
// is, fault.ClassOf tells.
type Error struct {
	Class string
	Err   error
	Log   []byte // what the tests, or the setup.sh, wrote where they ran
}

func (e *Error) Error() string {
	if e.Class == ClassSetup {
		return "begin the next stage: " + e.Err.Error()
	}
	return "run verifier: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Tests must give the same result everywhere and every time.
var environment = map[string]string{
	"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "978307200",
	"TEST_DIR": TestsFolder,
}

// script runs the tests, with bash where there is one.
const script = `mkdir -p ` + LogsFolder + ` && if command -v bash >/dev/null 2>&1; then exec bash ` + TestsFolder +
	`/test.sh; else exec sh ` + TestsFolder + `/test.sh; fi`

// command runs the tests.
func (s Spec) command(env map[string]string) sandbox.Command {
	run := script
	if s.reporting.channel != nil {
		run = together + script
	}
	return sandbox.Command{Argv: []string{"sh", "-c", run}, Env: env, Wall: s.Timeout, Channel: s.reporting.channel}
}

// together puts both streams into one, in the order in which they were written.
const together = "exec 2>&1; "

// Run scores. Its error is an *Error, or of ctx.
func Run(ctx context.Context, spec Spec) (Outcome, error) {
	outcome, err := judge(ctx, spec)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return Outcome{}, fmt.Errorf("run verifier: %w", cause)
	}
	if err == nil && outcome.grading != nil {
		outcome.Tests = outcome.grading.Tests(outcome.report, outcome.Reward, outcome.unkept)
	}
	return outcome, err
}

func run(ctx context.Context, spec Spec) (Outcome, error) {
	if spec.Timeout <= 0 {
		spec.Timeout = DefaultTimeout
	}
	begin := time.Now()
	var said []byte
	if len(spec.Collect) > 0 {
		var err error
		if spec.Changes, said, err = collect(ctx, spec); err != nil {
			return Outcome{}, err
		}
	}
	grading, spec, err := graded(spec)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: fmt.Errorf("read %s: %w", TestsFolder, err)}
	}
	filtered, err := filter(spec)
	if err != nil {
		return Outcome{}, applyError(err)
	}
	env := maps.Clone(environment)
	maps.Copy(env, spec.Env)
	readOnly, err := readOnlyFolders(spec, env)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	box := spec.sandbox(sandbox.RoleVerifier)
	box.Snapshot, box.ReadOnly = spec.From, readOnly
	sb, err := sandbox.New(ctx, box)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	defer sb.Close()
	if spec.From == nil {
		if err := sb.UnpackFrom(ctx, sb.Workdir(), spec.Snapshot); err != nil {
			return Outcome{}, &Error{Class: ClassSandbox, Err: fmt.Errorf("lay out the snapshot: %w", err)}
		}
	}
	if err := sb.ApplyFrom(ctx, filtered.Change); err != nil {
		return Outcome{}, applyError(err)
	}
	logs, err := makeLogs(ctx, sb)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	result, err := sb.Exec(ctx, spec.command(env))
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	outcome, err := score(ctx, sb, spec, result, func() (map[string]float64, grade.Report, error) {
		return reward(ctx, sb, grading, spec.reporting, logs, result)
	})
	outcome.conclude(grading)
	outcome.Duration = time.Since(begin)
	outcome.Log = append(said, outcome.Log...)
	outcome.Restored, outcome.Links = filtered.Protected, filtered.Links
	outcome.Isolation, outcome.Filesystem, outcome.User = sb.Isolation(), sb.FSMode(), sb.User()
	return outcome, err
}

// filter leaves of the changes what the tests may meet.
func filter(spec Spec) (sandbox.Filtered, error) {
	if spec.Changes == nil {
		return sandbox.Filtered{}, nil
	}
	return sandbox.Filter(spec.Snapshot, spec.Changes, cmp.Or(spec.Workdir, sandbox.DefaultWorkdir),
		Protects(spec.Protected))
}

func applyError(err error) error {
	class := ClassApply
	if errors.Is(err, sandbox.ErrClosed) || errors.Is(err, sandbox.ErrSource) {
		class = ClassSandbox
	}
	return &Error{Class: class, Err: fmt.Errorf("apply the changes: %w", err)}
}

// score reads the reward after the tests ended. Everything else that runs is killed first, and a
// reward is taken only if nothing was running beside the tests when they wrote it: what the agent's
// code leaves behind could write one too.
func score(ctx context.Context, sb *sandbox.Sandbox, spec Spec, result sandbox.Result,
	read func() (map[string]float64, grade.Report, error)) (Outcome, error) {
	log := append(result.Stdout, result.Stderr...)
	if err := sb.KillAll(ctx); err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err, Log: log}
	}
	if result.TimedOut {
		return Outcome{}, &Error{Class: ClassTimeout, Err: fmt.Errorf("timed out after %v", spec.Timeout), Log: log}
	}
	var components map[string]float64
	var report grade.Report
	var err error
	switch {
	case result.Signaled && result.OutOfMemory:
		err = errNoReward
	case result.Signaled:
		err = errKilled
	default:
		components, report, err = read()
	}
	if err != nil {
		return Outcome{report: report}, rewardError(err, result, log)
	}
	return Outcome{
		Reward: components[rewardKey], Components: components, ExitCode: result.ExitCode, Log: log,
		LeftBehind: !result.Detached.IsZero(), report: report,
	}, nil
}

func rewardError(err error, result sandbox.Result, log []byte) error {
	e := &Error{Class: ClassSandbox, Err: err, Log: log}
	switch {
	case errors.Is(err, errNoReward) && result.OutOfMemory:
		e.Class, e.Err = ClassMemory, fmt.Errorf("exit %d: out of memory", result.ExitCode)
	case errors.Is(err, errNoReward), errors.Is(err, grade.ErrNoEvidence):
		e.Class, e.Err = ClassNoReward, fmt.Errorf("exit %d: %w", result.ExitCode, err)
	case errors.Is(err, errBadReward):
		e.Class = ClassBadReward
	case slices.ContainsFunc(tampering, func(kind error) bool { return errors.Is(err, kind) }),
		errors.Is(err, grade.ErrImitated), errors.Is(err, grade.ErrEndedEarly):
		e.Class = ClassTampered
	}
	return e
}
