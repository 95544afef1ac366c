package verifier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"sync"
	"testing/fstest"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// Levels of separation between tests and the code under test, the strongest first.
const (
	// Separate: the code under test ran in another sandbox than the tests.
	Separate = "separate"
	// InProcess: the tests could see and run the workspace, as the same user, and a reward above 0
	// stands for code that fails canaries of them.
	InProcess = "in-process"
	// Unguarded is the same without canaries: code of the workspace that the tests ran
	// could decide its reward.
	Unguarded = "in-process-without-canaries"
)

var errGradedApart = errors.New("only pytest, unittest and gotest can grade separate tests: other reports could be written by the code under test")

// judge scores with the separation that the spec asks for, or with tests in process where
// no sandbox has namespaces.
func judge(ctx context.Context, spec Spec) (Outcome, error) {
	if spec.Separate {
		outcome, err := separate(ctx, spec)
		if !errors.Is(err, sandbox.ErrLink) {
			return outcome, err
		}
		spec.standIn = true
	}
	outcome, err := run(ctx, spec)
	outcome.Verifier = Unguarded
	if err != nil || outcome.grading == nil {
		return outcome, err
	}
	return guarded(ctx, spec, outcome)
}

// separate scores with the tests in one sandbox and the workspace in another. The tests reach
// it by the command under-test alone, and nothing of the workspace reaches the sandbox from
// which the reward is read.
func separate(ctx context.Context, spec Spec) (Outcome, error) {
	grading, spec, err := graded(spec)
	if err != nil || grading != nil && !grading.Channelled() {
		return Outcome{}, &Error{Class: ClassNoReward, Err: cmp.Or(err, errGradedApart)}
	}
	spec.Timeout = cmp.Or(max(spec.Timeout, 0), DefaultTimeout)
	begin := time.Now()
	env := maps.Clone(environment)
	maps.Copy(env, spec.Env)
	p, err := openPair(ctx, spec, env)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	defer p.close()
	said, filtered, err := p.fill(ctx, spec)
	if err != nil {
		return Outcome{}, err
	}
	env["PATH"] = sandbox.CallFolder + ":" + cmp.Or(env["PATH"], p.tests.Env()["PATH"])
	logs, err := makeLogs(ctx, p.tests)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	result, err := p.tests.Exec(ctx, spec.command(env))
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: err}
	}
	// No code of the workspace ran beside the tests: what else ran when the reward was written, and
	// who ended them, plays no part.
	result.Detached, result.Signaled = time.Time{}, false
	outcome, err := score(ctx, p.tests, spec, result, func() (map[string]float64, grade.Report, error) {
		return reward(ctx, p.tests, grading, spec.reporting, logs, result)
	})
	outcome.conclude(grading)
	outcome.Duration = time.Since(begin)
	outcome.Log = append(said, outcome.Log...)
	outcome.Restored, outcome.Links, outcome.Verifier = filtered.Protected, filtered.Links, Separate
	outcome.Isolation, outcome.Filesystem, outcome.User = p.tests.Isolation(), p.underTest.FSMode(), p.tests.User()
	return outcome, err
}

// pair is the two sandboxes of separate tests.
type pair struct{ tests, underTest *sandbox.Sandbox }

// openPair makes both at once. env is what the tests will start with.
func openPair(ctx context.Context, spec Spec, env map[string]string) (p pair, err error) {
	link, err := sandbox.NewLink()
	if err != nil {
		return p, err
	}
	defer link.Close()
	tests, underTest := spec.sandbox(sandbox.RoleVerifier), spec.sandbox(sandbox.RoleUnderTest)
	tests.Calls = link
	if tests.ReadOnly, err = testsFolders(spec, env); err != nil {
		return p, err
	}
	underTest.Snapshot = spec.From
	underTest.Serves = &sandbox.Served{Link: link, Env: underTestEnv(spec), Withheld: env}
	var made sync.WaitGroup
	var otherErr error
	made.Go(func() { p.underTest, otherErr = sandbox.New(ctx, underTest) })
	p.tests, err = sandbox.New(ctx, tests)
	made.Wait()
	if err = errors.Join(err, otherErr); err != nil {
		p.close()
	}
	return p, err
}

// underTestEnv is the environment of the code under test: that of every
// verifier, and the spec's for it.
func underTestEnv(spec Spec) map[string]string {
	env := maps.Clone(environment)
	delete(env, "TEST_DIR")
	maps.Copy(env, spec.UnderTestEnv)
	return env
}

func (p pair) close() {
	if p.tests != nil {
		_ = p.tests.Close()
	}
	if p.underTest != nil {
		_ = p.underTest.Close()
	}
}

// fill lays the workspace out for the code under test. It answers what the collect hooks wrote and
// what of the changes was left out.
func (p pair) fill(ctx context.Context, spec Spec) (said []byte, filtered sandbox.Filtered, err error) {
	if len(spec.Collect) > 0 {
		if spec.Changes, said, err = collect(ctx, spec); err != nil {
			return nil, filtered, err
		}
	}
	if filtered, err = filter(spec); err != nil {
		return nil, filtered, applyError(err)
	}
	if spec.From == nil {
		if err := p.underTest.UnpackFrom(ctx, p.underTest.Workdir(), spec.Snapshot); err != nil {
			return nil, filtered, &Error{Class: ClassSandbox, Err: fmt.Errorf("lay out the snapshot: %w", err)}
		}
	}
	if err := p.underTest.ApplyFrom(ctx, filtered.Change); err != nil {
		return nil, filtered, applyError(err)
	}
	return said, filtered, nil
}

// standIn is the command under-test where the code under test runs beside the tests.
const standIn = `#!/bin/sh
limit=
while :; do
	case $1 in
	-t) limit=$2 ;;
	-C) cd "$2" || exit 126 ;;
	--) shift && break ;;
	*) break ;;
	esac
	shift 2 || exit 125
done
if [ -n "$limit" ]; then exec timeout "$limit" "$@"; fi
exec "$@"
`

// testsFolders are the folders that the tests read wherever they run. The
// transcript's file is named in env.
func testsFolders(spec Spec, env map[string]string) (map[string][]byte, error) {
	folders := map[string][]byte{TestsFolder: spec.Tests}
	if spec.reporting.channel != nil {
		var err error
		if folders[reportersFolder], err = packReporters(); err != nil {
			return nil, err
		}
		spec.reporting.environment(env)
	}
	if spec.Transcript == nil {
		return folders, nil
	}
	env[TranscriptVariable] = TranscriptFile
	packed, err := sandbox.Pack(fstest.MapFS{path.Base(TranscriptFile): {Data: spec.Transcript, Mode: 0o644}})
	folders[TranscriptFolder] = packed
	return folders, err
}

// readOnlyFolders are those of a sandbox for tests in process. With the stand-in its folder is
// put into the PATH of env.
func readOnlyFolders(spec Spec, env map[string]string) (map[string][]byte, error) {
	folders, err := testsFolders(spec, env)
	if err != nil || !spec.standIn {
		return folders, err
	}
	packed, err := sandbox.Pack(fstest.MapFS{"under-test": {Data: []byte(standIn), Mode: 0o755}})
	folders[sandbox.CallFolder] = packed
	env["PATH"] = sandbox.CallFolder + ":" + cmp.Or(env["PATH"], sandbox.DefaultPath)
	return folders, err
}
