package eval

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
)

// evaluator is one call of `rondo eval`.
type evaluator struct {
	cmd   *cobra.Command
	g     *app.Global
	o     evalOptions
	s     service.Settings
	given func(flag string) bool
	show  *app.Progress
	p     *plane.Plane
	base  opening.RunFile // all but the policy
}

// measured is what an evaluation came to.
type measured struct {
	name     string // in tables
	run      string
	when     time.Time
	attempts []evaluation.Attempt
	files    map[string]storage.Ref // trajectories by rollout
	summary  evaluation.Summary
	cfg      runfile.RunConfig
	// missing is what keeps it from being a result.
	missing string
}

// once evaluates one version and, if it is asked for, compares it.
func (e *evaluator) once(ctx context.Context) error {
	s, err := evaluation.ParseSubject(e.o.policy)
	if err != nil {
		return err
	}
	check := func(ctx context.Context) error {
		if _, err := s.Pin(ctx, e.p.Store, e.base.Endpoint); err != nil {
			return err
		}
		return e.checkOpponent(ctx)
	}
	return e.prepared(ctx, check, func(ctx context.Context) error {
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
		return e.Publish(report, m)
	})
}

// prepared reads files and tasks, opens the plane and calls check, which looks at names before
// anything else takes time, and work.
func (e *evaluator) prepared(ctx context.Context, check, work func(context.Context) error) error {
	var err error
	if e.base, err = e.o.baseConfig(e.given); err != nil {
		return err
	}
	if e.s.AllowInsecure && e.o.file == "" {
		e.base.MinIsolation = sandbox.IsolationNone
	}
	list, err := opening.LoadTasks(e.base.TasksDir)
	if err != nil {
		return err
	}
	e.s.Pool = e.base.Pool
	return withServices(ctx, e.g, e.s, list, e.show, func(ctx context.Context, p *plane.Plane) error {
		e.p = p
		if err := check(ctx); err != nil {
			return err
		}
		if e.base.Tasks, err = opening.PackTasks(ctx, p.Store, list, e.base.Limits); err != nil {
			return err
		}
		return work(ctx)
	})
}

// baseConfig is the configuration of the evaluation's runs, without policy and tasks: the run
// file's, and over it the flags.
func (o *evalOptions) baseConfig(given func(string) bool) (opening.RunFile, error) {
	f := opening.RunFile{RunConfig: runfile.DefaultRunConfig()}
	if o.file != "" {
		var err error
		if f, err = opening.ReadRunFile(o.file); err != nil {
			return f, err
		}
	}
	// A training run's file does, too: what makes it one is left out.
	f.Steps, f.Feeds, f.Curriculum, f.External = 0, nil, nil, false
	if o.tasks != "" {
		f.TasksDir = o.tasks
	}
	if o.endpoint != runfile.BuiltinEndpoint || f.Endpoint == "" && len(f.Endpoints) == 0 || given("endpoint") {
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
	if given("in-flight") {
		f.InFlight = o.inFlight
	}
	f.GroupSize, f.Epochs = evaluation.GroupsOf(o.attempts, int(f.InFlight))
	return f, nil
}

// measure evaluates a version, or goes on with its evaluation, and
// summarises it. name "" is derived.
func (e *evaluator) measure(ctx context.Context, s evaluation.Subject, name string) (measured, error) {
	fold, s, err := e.tried(ctx, s, name)
	if err != nil {
		return measured{}, err
	}
	attempts, notes := fold.Attempts()
	m, err := e.summarise(fold, s.String(), attempts, notes)
	m.missing = fold.Missing()
	return m, err
}

// tried lets a version try all tasks, or goes on with that, and gives what is recorded when
// nothing is under way any more.
func (e *evaluator) tried(ctx context.Context, s evaluation.Subject,
	name string) (fold *evaluation.Recorded, pinned evaluation.Subject, err error) {
	if s, err = s.Pin(ctx, e.p.Store, e.base.Endpoint); err != nil {
		return nil, s, err
	}
	f := e.base
	f.Policy, f.PolicyVersion = s.Policy, s.Version
	if name == "" {
		name = evaluation.RunName(f.RunConfig)
	}
	if err := e.open(ctx, name, &f); err != nil {
		return nil, s, err
	}
	if fold, err = e.wait(ctx, name); err != nil && ctx.Err() != nil {
		e.show.Line("run %s goes on when the same command is given again", name)
	}
	return fold, s, err
}

// summarise makes figures of a run's attempts.
func (e *evaluator) summarise(f *evaluation.Recorded, name string, attempts []evaluation.Attempt,
	notes []string) (measured, error) {
	m := measured{name: name, run: f.Name, when: f.Opened, cfg: f.Config, attempts: attempts, files: f.Trajectories()}
	var err error
	m.summary, err = evaluation.Summarise(name, m.attempts, e.o.figures())
	if err != nil {
		return m, fmt.Errorf("run %s: %w", f.Name, err)
	}
	m.summary.Notes = append(m.summary.Notes, notes...)
	return m, nil
}

// opponent is what --against names: a version, which is evaluated in the
// same way, or a recorded run.
func (e *evaluator) opponent(ctx context.Context) (measured, error) {
	s, err := evaluation.ParseSubject(e.o.against)
	if err == nil && s.Version != nil {
		return e.measure(ctx, s, "")
	}
	return e.measureRecorded(ctx, e.o.against, nil)
}

// checkOpponent says that --against names nothing, before anything is tried.
func (e *evaluator) checkOpponent(ctx context.Context) error {
	if e.o.against == "" {
		return nil
	}
	s, err := evaluation.ParseSubject(e.o.against)
	if err == nil && s.Version != nil {
		_, err = s.Pin(ctx, e.p.Store, e.base.Endpoint)
	} else if err = e.p.MustRun(ctx, e.o.against); err != nil && e.o.from == "" {
		err = fmt.Errorf("%w (a version is NAME@VERSION)", err)
	}
	if err != nil {
		return fmt.Errorf("--against %s: %w", e.o.against, err)
	}
	return nil
}
