// Package verifier scores a workspace: it lays the task's snapshot and the agent's changes out in a fresh sandbox, runs the task's
// tests there, and reads the reward that they wrote. The tests are nowhere but in that sandbox, and unchangeable in it.
package verifier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// Paths inside the sandbox, as task packs of the Harbor format expect them.
const (
	TestsFolder = "/tests"
	LogsFolder  = "/logs/verifier"
)

// DefaultTimeout is how long tests may run.
const DefaultTimeout = 600 * time.Second

// Spec says what to score. Snapshot and Tests are archives of sandbox.Pack, Changes of Sandbox.Changes (nil: none). Protected are patterns of paths
// that stay as the snapshot has them, beside the package's own. Collect are commands that run over the agent's workspace before the tests' sandbox is made.
type Spec struct {
	Name          string
	Workdir       string
	Root          string // as in sandbox.Spec
	Snapshot      []byte
	From          *sandbox.Snapshot // Snapshot made ready for sandboxes of sandbox.RoleVerifier; nil unpacks it
	Changes       []byte
	Tests         []byte
	Protected     []string
	Collect       []Hook
	Env           map[string]string
	Mounts        []sandbox.Mount
	Timeout       time.Duration
	Limits        sandbox.Limits
	AllowInsecure bool
	MinIsolation  string // as in sandbox.Spec
}

// Outcome is a score. Components are all the numbers that the tests reported, with the reward among them.
type Outcome struct {
	Reward     float64
	Components map[string]float64
	ExitCode   int    // of the tests; it is not the reward
	Log        []byte // what the tests wrote, the standard output first
	Duration   time.Duration
	// Restored are protected paths that the changes touched, Links links of theirs that led out of the workspace. The tests met neither.
	Restored, Links []string
	// LeftBehind: a process got away from the tests, though not for as long as it would have taken to write the reward.
	LeftBehind bool
	// Isolation, Filesystem and User are those of the sandbox. With sandbox.UserOwn the tests were another user of the host than agents' processes.
	Isolation, Filesystem, User string
}

// Classes of Error.
const (
	ClassTimeout   = "timeout"    // the tests did not end in time
	ClassNoReward  = "no_reward"  // the tests ended without writing a reward
	ClassBadReward = "bad_reward" // what they wrote is not a reward
	ClassTampered  = "tampered"   // a process that the tests left behind could have written the reward
	ClassMemory    = "oom"        // the tests ran out of memory and wrote no reward
	ClassApply     = "apply"      // the changes do not fit over the snapshot
	ClassSetup     = "setup"      // what a step brings along does not fit over the workspace, or its setup.sh failed
	ClassSandbox   = "sandbox"    // the sandbox failed; to try again may help
)

// Error says why there is no score, or why a step cannot begin. That is never a score of 0.
type Error struct {
	Class string
	Err   error
	Log   []byte // what the tests, or the setup.sh, wrote where they ran
}

func (e *Error) Error() string {
	if e.Class == ClassSetup {
		return "begin the next step: " + e.Err.Error()
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
const script = `mkdir -p ` + LogsFolder + ` && if command -v bash >/dev/null 2>&1; then exec bash ` + TestsFolder + `/test.sh; else exec sh ` + TestsFolder + `/test.sh; fi`

// together puts both streams into one, in the order in which they were written.
const together = "exec 2>&1; "

// Run scores. Its error is an *Error, or of ctx.
func Run(ctx context.Context, spec Spec) (Outcome, error) {
	outcome, err := run(ctx, spec)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return Outcome{}, fmt.Errorf("run verifier: %w", cause)
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
	grading, err := gradingOf(spec.Tests)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: fmt.Errorf("read %s: %w", TestsFolder, err)}
	}
	if grading != nil {
		spec.Limits.OutputBytes = gradedOutput
	}
	sifted, err := sift(spec)
	if err != nil {
		return Outcome{}, applyError(err)
	}
	sb, err := sandbox.New(ctx, sandbox.Spec{
		Name: spec.Name, Role: sandbox.RoleVerifier, Workdir: spec.Workdir, Snapshot: spec.From, Root: spec.Root, Mounts: spec.Mounts,
		ReadOnly: map[string][]byte{TestsFolder: spec.Tests},
		Limits:   spec.Limits, AllowInsecure: spec.AllowInsecure, MinIsolation: spec.MinIsolation,
	})
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	defer sb.Close()
	if spec.From == nil {
		if err := sb.Unpack(ctx, sb.Workdir(), spec.Snapshot); err != nil {
			return Outcome{}, &Error{Class: ClassSandbox, Err: fmt.Errorf("lay out the snapshot: %w", err)}
		}
	}
	if err := sb.Apply(ctx, sifted.Change); err != nil {
		return Outcome{}, applyError(err)
	}
	env := maps.Clone(environment)
	maps.Copy(env, spec.Env)
	run := script
	if grading != nil {
		run = together + script
	}
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", run}, Env: env, Wall: spec.Timeout})
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	outcome, err := score(ctx, sb, spec, grading, result)
	outcome.Duration = time.Since(begin)
	outcome.Log = append(said, outcome.Log...)
	outcome.Restored, outcome.Links = sifted.Protected, sifted.Links
	outcome.Isolation, outcome.Filesystem, outcome.User = sb.Isolation(), sb.FSMode(), sb.User()
	return outcome, err
}

// sift leaves of the changes what the tests may meet.
func sift(spec Spec) (sandbox.Sifted, error) {
	if len(spec.Changes) == 0 {
		return sandbox.Sifted{}, nil
	}
	return sandbox.Sift(spec.Snapshot, spec.Changes, cmp.Or(spec.Workdir, sandbox.DefaultWorkdir), Protects(spec.Protected))
}

func applyError(err error) error {
	class := ClassApply
	if errors.Is(err, sandbox.ErrClosed) {
		class = ClassSandbox
	}
	return &Error{Class: class, Err: fmt.Errorf("apply the changes: %w", err)}
}

// score reads the reward after the tests ended. Everything else that runs is killed first, and a reward is taken only if nothing
// was running beside the tests when they wrote it: what the agent's code leaves behind could write one too.
func score(ctx context.Context, sb *sandbox.Sandbox, spec Spec, grading *grade.Grading, result sandbox.Result) (Outcome, error) {
	log := append(result.Stdout, result.Stderr...)
	if err := sb.KillAll(ctx); err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err, Log: log}
	}
	if result.TimedOut {
		return Outcome{}, &Error{Class: ClassTimeout, Err: fmt.Errorf("timed out after %v", spec.Timeout), Log: log}
	}
	var components map[string]float64
	var err error
	switch {
	case result.Signaled && result.OutOfMemory:
		err = errNoReward
	case result.Signaled:
		err = errKilled
	case grading != nil:
		components, err = graded(grading, result)
	default:
		components, err = readReward(ctx, sb, result.Detached)
	}
	if err != nil {
		return Outcome{}, rewardError(err, result, log)
	}
	return Outcome{
		Reward: components[rewardKey], Components: components, ExitCode: result.ExitCode, Log: log, LeftBehind: !result.Detached.IsZero(),
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
	case errors.Is(err, errTampered), errors.Is(err, errKilled), errors.Is(err, grade.ErrImitated):
		e.Class = ClassTampered
	}
	return e
}
