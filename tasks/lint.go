package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// LintOptions say how Lint proves a task.
type LintOptions struct {
	Machine
	Repeats int // of each proof; 0 is 3, which shows most of what is not deterministic
}

// Verdicts on a task.
const (
	VerdictOK       = "ok"
	VerdictWarnings = "warnings" // it can be trained on; its author should look at something
	// it is sound for honest work, and code that its tests run can decide the reward: a run
	// has to say that it takes it
	VerdictInProcess   = "in-process"
	VerdictUnsound     = "not sound"          // it does not measure what it should, or is no task
	VerdictUnsupported = "cannot be honoured" // it asks for what Rondo does not have
)

// Report is what Lint found out about one task.
type Report struct {
	Task    string `json:"task"`
	Digest  string `json:"digest"`
	OK      bool   `json:"ok"`      // no problems
	Verdict string `json:"verdict"` // one of the Verdict constants
	// one of runfile's Verifier constants: what the task is, or less where this machine cannot
	Verifier string `json:"verifier,omitempty"`
	// of a graded task: how many of the tests that must begin to pass can be made canaries
	Canaries int       `json:"canaries,omitempty"`
	Field    string    `json:"field,omitempty"`    // what cannot be honoured
	Problems []string  `json:"problems,omitempty"` // the task must not be trained on
	Warnings []string  `json:"warnings,omitempty"` // the task's author should look at these
	Nothing  []Attempt `json:"nothing"`            // the untouched snapshot, which must score 0
	Solution []Attempt `json:"solution"`           // the snapshot after solution/solve.sh, which must score 1
}

// Attempt is one scoring.
type Attempt struct {
	Reward *float64 `json:"reward"` // null when there is no score
	// why not: a class of verifier.Error, "solution" or "healthcheck"
	Class string `json:"class,omitempty"`
	Error string `json:"error,omitempty"` // the same as a sentence
	// the end of the verifier's output, where the reward is not the wanted one
	Log      string        `json:"log,omitempty"`
	Duration time.Duration `json:"duration_ns"`        // of the scoring, with its sandbox
	Changed  int           `json:"changed,omitempty"`  // bytes of the archive of the solution's changes
	ExitCode int           `json:"exitcode,omitempty"` // of the verifier; it is not the reward
	// protected paths that the changes touched: the tests met them as the snapshot has them
	Restored []string `json:"restored,omitempty"`
	Verifier string   `json:"verifier,omitempty"` // the separation that there was, as in verifier.Outcome

	cause error // of a stage that cannot begin
}

const (
	defaultRepeats = 3
	logTail        = 2000 // bytes of a log in a report
	lintName       = "lint"
)

// Lint proves that a task measures what it should: in real sandboxes, the
// untouched snapshot scores 0 and the reference solution scores 1, every time.
func Lint(ctx context.Context, task *Task, opts LintOptions) Report {
	report := Report{Task: task.Name, Digest: task.Digest, Nothing: []Attempt{}, Solution: []Attempt{}}
	if opts.Repeats <= 0 {
		opts.Repeats = defaultRepeats
	}
	if err := task.OpenImage(ctx, opts.ToolchainCache); err != nil {
		report.unsupported(err)
		report.problem("%v", err)
	} else {
		report.inspect(task)
		if err := report.prove(ctx, task, opts); err != nil {
			report.problem("%v", err)
		}
	}
	report.OK = len(report.Problems) == 0
	if report.OK && opts.Repeats >= defaultRepeats {
		if err := noteProof(opts.ToolchainCache, task); err != nil {
			report.warn("that the task is proven cannot be noted: %v", err)
		}
	}
	switch {
	case report.Verdict != "":
	case !report.OK:
		report.Verdict = VerdictUnsound
	case report.Verifier != verifier.Separate:
		report.Verdict = VerdictInProcess
	case len(report.Warnings) > 0:
		report.Verdict = VerdictWarnings
	default:
		report.Verdict = VerdictOK
	}
	return report
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r *Report) prove(ctx context.Context, task *Task, opts LintOptions) error {
	p, err := newProver(ctx, task, opts)
	if err != nil {
		return err
	}
	defer p.close()
	if check := task.Healthcheck; check != nil {
		if err := p.healthy(ctx, "environment.healthcheck", check, nil); err != nil {
			r.unsupported(err)
			r.problem("task.toml: %v", err)
		}
	}
	for range opts.Repeats {
		r.Nothing = append(r.Nothing, p.attempt(ctx, p.nothing, 0))
	}
	r.judge("doing nothing", r.Nothing, 0)
	for _, s := range p.stages {
		if s.solution == nil {
			r.problem("%ssolution/solve.sh: missing: nothing shows that the task can be solved", s.folder())
			return ctx.Err()
		}
	}
	for range opts.Repeats {
		r.Solution = append(r.Solution, p.attempt(ctx, p.applySolution, 1))
	}
	r.judge("the solution", r.Solution, 1)
	r.protects()
	return ctx.Err()
}

// judge compares the attempts with the reward that each must have.
func (r *Report) judge(who string, attempts []Attempt, want float64) {
	if r.Verifier == verifier.Separate &&
		slices.ContainsFunc(attempts, func(a Attempt) bool {
			return a.Reward != nil &&
				a.Verifier != verifier.Separate
		}) {
		r.Verifier = verifier.Unguarded
		r.warn("the tests are separate, but ran in process: this machine has no sandboxes with namespaces")
	}
	for i, attempt := range attempts {
		switch {
		case attempt.Reward == nil:
			r.unsupported(attempt.cause)
			r.problem("%s, attempt %d: no score (%s): %s", who, i+1, attempt.Class, attempt.Error)
		case *attempt.Reward != want:
			r.problem("%s, attempt %d: scores %g instead of %g", who, i+1, *attempt.Reward, want)
		}
	}
}

// protects names the protected files that the solution changes: the same work of an agent is put
// back before the tests see it.
func (r *Report) protects() {
	var names, free []string
	for _, attempt := range r.Solution {
		names = append(names, attempt.Restored...)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		return
	}
	for _, name := range names {
		free = append(free, strconv.Quote("!"+name))
	}
	text := fmt.Sprintf("the solution changes %s, which is protected: the tests see it as the snapshot has it, whatever an agent does (flag %s). If it is the agent's to change, "+
		"say so in task.toml: [metadata.rondo] protected = [%s]",
		strings.Join(names[:min(len(names), namedPaths)], ", "), runfile.FlagProtected,
		strings.Join(free[:min(len(free), namedPaths)], ", "))
	if slices.ContainsFunc(r.Solution, func(a Attempt) bool { return a.Reward == nil || *a.Reward != 1 }) {
		r.problem("%s", text)
		return
	}
	r.warn("%s", text)
}

// namedPaths is how many paths a report names at once.
const namedPaths = 10

// prover holds what all attempts at one task share.
type prover struct {
	task     *Task
	snapshot *Archive
	stages   []provedStage
	boxes    *Sandboxes

	baselines verifier.Baselines
}

func newProver(ctx context.Context, task *Task, opts LintOptions) (*prover, error) {
	boxes, err := opts.Machine.Sandboxes(ctx, task)
	if err != nil {
		return nil, err
	}
	p := &prover{task: task, boxes: boxes}
	if p.snapshot, err = Pack(task.Snapshot); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if p.stages, err = provedStages(task); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *prover) close() error { return p.snapshot.Close() }

// spec describes the tests of a stage, over the snapshot with changes.
func (p *prover) spec(ctx context.Context, stage provedStage, changes []byte) (verifier.Spec, error) {
	spec, err := p.boxes.Verifier(ctx, lintName)
	spec.Snapshot, spec.Changes, spec.Tests = p.snapshot.Open, sandbox.Bytes(changes), stage.tests
	spec.Baselines, spec.Key = &p.baselines, p.task.Digest
	spec.Collect, spec.Timeout, spec.Env = stage.Collect, stage.VerifierTimeout, p.boxes.Env(stage.VerifierEnv)
	return spec, err
}

// score runs the verifier of a stage over the snapshot with changes.
func (p *prover) score(ctx context.Context, stage provedStage, changes []byte,
	want float64) (Attempt, map[string]float64) {
	begin := time.Now()
	spec, err := p.spec(ctx, stage, changes)
	var outcome verifier.Outcome
	if err == nil {
		outcome, err = verifier.Run(ctx, spec)
	}
	attempt := Attempt{Duration: time.Since(begin), Changed: len(changes), ExitCode: outcome.ExitCode}
	if err != nil {
		attempt.Error, attempt.Class = err.Error(), verifier.ClassSandbox
		if failed, ok := errors.AsType[*verifier.Error](err); ok {
			attempt.Class, attempt.Log = failed.Class, tail(failed.Log)
		}
		return attempt, nil
	}
	attempt.Reward, attempt.Verifier, attempt.Restored = &outcome.Reward, outcome.Verifier, outcome.Restored
	if outcome.Reward != want {
		attempt.Log = tail(outcome.Log)
	}
	return attempt, outcome.Components
}

// runSolution uses bash where there is one, as for the verifier.
const runSolution = "if command -v bash >/dev/null 2>&1; then exec bash /solution/solve.sh; else exec sh /solution/solve.sh; fi"

// ErrSolution says that it is a task's solution that does not work, and not the machine.
var ErrSolution = errors.New("the solution does not work")

// applySolution runs the reference fix of a stage, in a sandbox of its own with the changes of
// those before, and gives what is changed then.
func (p *prover) applySolution(ctx context.Context, stage provedStage, changes []byte) ([]byte, error) {
	box := p.boxes.Agent(lintName)
	box.ReadOnly = map[string][]byte{"/solution": stage.solution}
	sb, err := sandbox.New(ctx, box)
	if err != nil {
		return nil, err
	}
	defer sb.Close()
	if err := sb.UnpackFrom(ctx, sb.Workdir(), p.snapshot.Open); err != nil {
		return nil, err
	}
	if err := errors.Join(sb.SetBase(ctx), sb.Apply(ctx, changes)); err != nil {
		return nil, err
	}
	script := stage.folder() + "solution/solve.sh"
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", runSolution},
		Env: p.boxes.Env(p.task.SolutionEnv), Wall: stage.VerifierTimeout})
	switch {
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", script, err)
	case result.TimedOut:
		return nil, fmt.Errorf("%w: run %s: timed out after %v", ErrSolution, script, stage.VerifierTimeout)
	case result.ExitCode != 0:
		return nil, fmt.Errorf("%w: run %s: exit %d: %s", ErrSolution, script, result.ExitCode, tail(result.Stderr))
	}
	changes, err = sb.Changes(ctx)
	if err == nil && changes == nil {
		err = fmt.Errorf("%w: run %s: it changed nothing", ErrSolution, script)
	}
	return changes, err
}

// healthy runs a health check, which is at a key, over the snapshot with changes. Nothing starts by
// itself in a sandbox, so that it fails now says that it always will.
func (p *prover) healthy(ctx context.Context, key string, check *verifier.Hook, changes []byte) error {
	sb, err := sandbox.New(ctx, p.boxes.Agent(lintName))
	if err != nil {
		return err
	}
	defer sb.Close()
	if err := errors.Join(sb.UnpackFrom(ctx, sb.Workdir(), p.snapshot.Open), sb.Apply(ctx, changes)); err != nil {
		return err
	}
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", check.Command}, Wall: check.Timeout})
	if err != nil || result.ExitCode == 0 && !result.TimedOut {
		return err
	}
	return unsupported(key, "exit %d: a sandbox starts no service that it could wait for: %s", result.ExitCode,
		tail(append(result.Stdout, result.Stderr...)))
}

func tail(log []byte) string {
	if len(log) > logTail {
		return "..." + string(log[len(log)-logTail:])
	}
	return string(log)
}
