package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
)

// evaluator is one call of `rondo eval`.
type evaluator struct {
	cmd   *cobra.Command
	g     *global
	o     evalOptions
	s     settings
	given func(flag string) bool
	show  *progress
	p     *plane
	base  runFile // all but the policy
}

// measured is what an evaluation came to.
type measured struct {
	name     string // in tables
	run      string
	when     time.Time
	attempts []evaluation.Attempt
	files    map[string]storage.Ref // trajectories by rollout
	summary  evaluation.Summary
	cfg      events.RunConfig
	// missing is what keeps it from being a result.
	missing string
}

// once evaluates one version and, if it is asked for, compares it.
func (e *evaluator) once(ctx context.Context) error {
	s, err := parseSubject(e.o.policy)
	if err != nil {
		return err
	}
	return e.prepared(ctx, func(ctx context.Context) error {
		m, err := e.measure(ctx, s, e.o.run)
		if err != nil {
			return err
		}
		report := e.report(m)
		if e.o.against != "" {
			other, err := e.opponent(ctx)
			if err == nil {
				report, err = e.compare(report, m, other)
			}
			if err != nil {
				return err
			}
		}
		return e.publish(report, m)
	})
}

// prepared reads files and tasks, opens the plane and calls work.
func (e *evaluator) prepared(ctx context.Context, work func(context.Context) error) error {
	var err error
	if e.base, err = e.o.baseConfig(e.given); err != nil {
		return err
	}
	if e.s.allowInsecure && e.o.file == "" {
		e.base.MinIsolation = sandbox.IsolationNone
	}
	list, err := loadTasks(e.base.TasksDir)
	if err != nil {
		return err
	}
	e.s.pool = e.base.Pool
	return withServices(ctx, e.g, e.s, list, e.show, func(ctx context.Context, p *plane) error {
		e.p = p
		if e.base.Tasks, err = packTasks(ctx, p.store, list); err != nil {
			return err
		}
		return work(ctx)
	})
}

// baseConfig is the configuration of the evaluation's runs, without policy and tasks: the run file's, and over it the flags.
func (o *evalOptions) baseConfig(given func(string) bool) (runFile, error) {
	f := runFile{RunConfig: events.DefaultRunConfig()}
	if o.file != "" {
		var err error
		if f, err = readRunFile(o.file); err != nil {
			return f, err
		}
	}
	// A training run's file does, too: what makes it one is left out.
	f.Steps, f.Feeds, f.Curriculum, f.External = 0, nil, nil, false
	if o.tasks != "" {
		f.TasksDir = o.tasks
	}
	if o.endpoint != events.BuiltinEndpoint || f.Endpoint == "" && len(f.Endpoints) == 0 || given("endpoint") {
		f.Endpoint, f.Endpoints = o.endpoint, nil
	}
	if o.file == "" || given("seed") {
		f.Seed = o.seed
	}
	if o.file == "" || given("temperature") {
		f.Sampling.Temperature = o.temperature
	}
	if o.file == "" || given("turns") {
		f.Limits.Turns = o.turns
	}
	if o.inFlight > 0 {
		f.InFlight = o.inFlight
	}
	f.GroupSize, f.Epochs = groupsOf(o.attempts, f.InFlight)
	return f, nil
}

// largestGroup bounds the attempts at a task that begin at the same moment.
const largestGroup = 32

// groupsOf divides the attempts at a task into groups of equal size, as few as there can be. No group is larger than what may be
// under way, which is 0 for the default.
func groupsOf(attempts, inFlight int) (size, groups int) {
	most := largestGroup
	if inFlight > 0 {
		most = min(most, inFlight)
	}
	for groups = 1; attempts%groups != 0 || attempts/groups > most; groups++ {
	}
	return attempts / groups, groups
}

// measure evaluates a version, or goes on with its evaluation, and summarises it. name "" is derived.
func (e *evaluator) measure(ctx context.Context, s subject, name string) (measured, error) {
	s, note, err := s.pin(ctx, e.p.store, e.base.Endpoint)
	if err != nil {
		return measured{}, err
	}
	f := e.base
	f.Policy, f.PolicyVersion = s.policy, s.version
	if name == "" {
		name = derivedName(f.RunConfig)
	}
	if err := e.open(ctx, name, &f); err != nil {
		return measured{}, err
	}
	fold, err := e.wait(ctx, name)
	if err != nil {
		if ctx.Err() != nil {
			e.show.line("run %s goes on when the same command is given again", name)
		}
		return measured{}, err
	}
	attempts, notes := fold.attempts()
	if note != "" {
		notes = append(notes, note)
	}
	m, err := e.summarise(fold, s.String(), attempts, notes)
	m.missing = fold.missing()
	return m, err
}

// derivedName is the same for the same evaluation, so that the same command finds its run.
func derivedName(cfg events.RunConfig) string {
	text, err := json.Marshal(cfg)
	if err != nil {
		panic(err) // a configuration that was validated is text and numbers
	}
	name := fmt.Sprintf("eval-%.28s", cfg.Policy)
	if cfg.PolicyVersion != nil {
		name += fmt.Sprintf("-v%d", *cfg.PolicyVersion)
	}
	return fmt.Sprintf("%s-%x", name, sha256.Sum256(text))[:len(name)+9]
}

// summarise makes figures of a run's attempts.
func (e *evaluator) summarise(f *evaluated, name string, attempts []evaluation.Attempt, notes []string) (measured, error) {
	m := measured{name: name, run: f.Run, when: f.opened, cfg: f.Config, attempts: attempts, files: map[string]storage.Ref{}}
	for id, c := range f.costs {
		m.files[id] = c.trajectory
	}
	var err error
	m.summary, err = evaluation.Summarise(name, m.attempts, e.o.figures())
	if err != nil {
		return m, fmt.Errorf("run %s: %w", f.Run, err)
	}
	m.summary.Notes = append(m.summary.Notes, notes...)
	return m, nil
}

// opponent is what --against names: a version, which is evaluated in the same way, or a recorded run.
func (e *evaluator) opponent(ctx context.Context) (measured, error) {
	s, err := parseSubject(e.o.against)
	if err == nil && s.version != nil {
		return e.measure(ctx, s, "")
	}
	m, err := e.measureRecorded(ctx, e.o.against, nil)
	if err != nil {
		err = fmt.Errorf("--against %s: %w (a version is NAME@VERSION)", e.o.against, err)
	}
	return m, err
}
