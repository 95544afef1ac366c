package verifier

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/canary"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

var (
	errCanary  = errors.New("the code under test passes a test whose expectation was made wrong: it decides its own verdict")
	errControl = errors.New("the tests pass over the task's untouched snapshot: they do not show whether the work is done")
)

// furtherRuns is how often the tests run again before a reward above 0 counts: with wrong
// expectations at least once, otherwise as they are, by chance. Code that knows the first run
// from the others, by a clock say, has to guess what each of these is: one guess of
// 2^furtherRuns - 1 is right.
const furtherRuns = 4

// deal says of each further run whether it is one with wrong expectations.
func deal(random *mathrand.Rand) (wrong [furtherRuns]bool) {
	sides := 1 + random.IntN(1<<furtherRuns-1)
	for i := range wrong {
		wrong[i] = sides>>i&1 == 1
	}
	return wrong
}

// Baselines remember what graded tests come to over snapshots that nobody has touched.
// The zero value is ready.
type Baselines struct {
	mu    sync.Mutex
	known map[string]*baseline
}

// maxBaselines bounds how many are remembered.
const maxBaselines = 1000

// baseline is one of them: who wants it waits for who makes it.
type baseline struct {
	mu        sync.Mutex
	looked    bool
	sites     []canary.Site
	ran       bool
	untouched grade.Results
	err       error // of tests that pass
}

func (b *Baselines) baseline(spec Spec) *baseline {
	if b == nil || spec.Key == "" {
		return &baseline{}
	}
	key := fmt.Sprintf("%s %x", spec.Key, sha256.Sum256(spec.Tests))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBaselines {
		b.known = map[string]*baseline{}
	}
	if b.known[key] == nil {
		b.known[key] = &baseline{}
	}
	return b.known[key]
}

// guarded lets a reward of graded tests count if four things hold: the tests fail over the
// untouched snapshot, what they skip they skip there, too, the code under test passes them whenever
// they run, and fails copies of them whose expectations are wrong. The last two are left out where
// no expectation can be made wrong; the outcome says so.
func guarded(ctx context.Context, spec Spec, outcome Outcome) (Outcome, error) {
	b := spec.Baselines.baseline(spec)
	sites, err := b.canaries(spec, outcome.grading)
	if err != nil {
		return Outcome{}, &Error{Class: ClassSandbox, Err: fmt.Errorf("look for canaries: %w", err), Log: outcome.Log}
	}
	if canary.Count(sites) > 0 {
		outcome.Verifier = InProcess
	}
	if outcome.Reward > 0 && spec.Changes != nil {
		if err := b.control(ctx, spec, &outcome); err != nil {
			return outcome, err
		}
	}
	random := spec.random
	if random == nil {
		var seed [32]byte
		_, _ = rand.Read(seed[:]) // never fails
		random = mathrand.New(mathrand.NewChaCha8(seed))
	}
	kinds, kind := [2][]canary.Site{sites, canary.Shorter(sites)}, random.IntN(2)
	for _, wrong := range deal(random) {
		if outcome.Reward <= 0 || canary.Count(sites) == 0 {
			break
		}
		further := repeated
		if wrong {
			further, kind = planted, 1-kind // two canaries are never of one kind alone
		}
		if err := further(ctx, spec, kinds[kind], random, &outcome); err != nil {
			return Outcome{Verifier: InProcess}, err
		}
	}
	return outcome, nil
}

// canaries are the sites of the task's tests.
func (b *baseline) canaries(spec Spec, g *grade.Grading) ([]canary.Site, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looked {
		return b.sites, nil
	}
	tests, err := sandbox.Tree(sandbox.MaxBytes, sandbox.Bytes(spec.Tests), nil)
	if err != nil {
		return nil, err
	}
	snapshot, err := sandbox.Tree(maxTestFile, spec.Snapshot, nil)
	if errors.Is(err, sandbox.ErrTooLarge) {
		snapshot, err = fstest.MapFS{}, nil // new files alone
	}
	if err != nil {
		return nil, err
	}
	b.sites, b.looked = canary.Find(g, tests, snapshot), true
	return b.sites, nil
}

// maxTestFile is the largest file of a snapshot in which canaries are looked for, in bytes.
const maxTestFile = 4 << 20

// control compares an outcome with what the tests come to over the snapshot, where they run once.
// They may give no verdict there.
func (b *baseline) control(ctx context.Context, spec Spec, outcome *Outcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ran {
		spec.Changes = nil
		untouched, err := run(ctx, spec)
		var failed *Error
		switch {
		case err == nil && untouched.Reward > 0:
			b.err = &Error{Class: ClassControl, Err: errControl, Log: untouched.Log}
		case err != nil && (!errors.As(err, &failed) || failed.Class == ClassSandbox || ctx.Err() != nil):
			return err
		}
		b.untouched, b.ran = untouched.report.Results, true
	}
	if b.err != nil {
		return b.err
	}
	if names := outcome.grading.Unkept(outcome.report, b.untouched); len(names) > 0 {
		all := float64(len(outcome.grading.PassToPass))
		outcome.Reward, outcome.Components[rewardKey], outcome.unkept = 0, 0, names
		outcome.Components["pass_to_pass"] -= float64(len(names)) / all
		outcome.Log = fmt.Appendf(outcome.Log,
			"\n%d tests are skipped, or expected to fail, that are not so over the untouched snapshot: %.400s\n",
			len(names), strings.Join(names[:min(len(names), namedTests)], ", "))
	}
	return nil
}

// Observe runs graded tests once and answers how each of them ended, whatever that is worth. Its
// error is as that of Run, and the outcome's log is the run's.
func Observe(ctx context.Context, spec Spec) (grade.Report, Outcome, error) {
	outcome, err := run(ctx, spec)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("run verifier: %w", cause)
	}
	return outcome.report, outcome, err
}

// repeated runs the tests once more as they are. The worse of two outcomes counts.
func repeated(ctx context.Context, spec Spec, _ []canary.Site, _ *mathrand.Rand, outcome *Outcome) error {
	got, err := run(ctx, spec)
	if err != nil {
		return err
	}
	got.Duration += outcome.Duration
	if got.Reward < outcome.Reward {
		got.Verifier, got.Log = outcome.Verifier, append(got.Log,
			"\nThe tests passed in one run and not in another.\n"...)
		*outcome = got
		return nil
	}
	outcome.Duration = got.Duration
	return nil
}

// planted runs the tests with wrong expectations over the same workspace.
func planted(ctx context.Context, spec Spec, sites []canary.Site, random *mathrand.Rand, outcome *Outcome) error {
	tests, err := sandbox.Tree(sandbox.MaxBytes, sandbox.Bytes(spec.Tests), nil)
	if err != nil {
		return &Error{Class: ClassSandbox, Err: fmt.Errorf("plant canaries: %w", err)}
	}
	var folder fs.FS
	folder, wrong, err := canary.Plant(tests, sites, random)
	if err == nil {
		spec.Tests, err = sandbox.Pack(folder)
	}
	if err != nil {
		return &Error{Class: ClassSandbox, Err: fmt.Errorf("plant canaries: %w", err)}
	}
	got, err := run(ctx, spec)
	if err != nil {
		return err
	}
	outcome.Duration += got.Duration
	if passed := got.grading.PassedOf(got.report, wrong); len(passed) > 0 {
		return &Error{Class: ClassTampered, Err: fmt.Errorf("%w: %.400s", errCanary,
			strings.Join(passed[:min(len(passed), namedTests)], ", ")), Log: got.Log}
	}
	return nil
}
