// Package blast_test looks at how far trouble in one run reaches: a healthy run stands beside a
// poisoned one, on the same log, in the same store, with the same services.
package blast_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/deadletters"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

const (
	healthy = "healthy"
	poison  = "poison"
	// steps are those of the healthy run, of which it makes some before the trouble, some in
	// it and the rest behind it.
	steps = 12
	// pace is what a step may take in virtual time, in which only what waits for something takes
	// any. A rest that a failing decider takes is longer by far.
	pace = 2 * time.Second
	// enough is more time than any of it takes.
	enough = 9 * time.Minute
)

// plane is a log with the services that groups from outside meet, and two runs.
type plane struct {
	t     *testing.T
	log   *eventlog.Log
	told  *told
	steps map[string]int64 // that a run has made
	said  int              // submissions
	// jammed: the poisoned run's second feed panics.
	jammed atomic.Bool
}

// start begins with a step in each run, so that both are known to work.
func start(t *testing.T) *plane {
	t.Helper()
	p := &plane{t: t, log: natstest.Log(t), told: &told{}, steps: map[string]int64{}}
	for _, run := range []string{healthy, poison} {
		cfg := servicetest.Config()
		cfg.External, cfg.Endpoint, cfg.Policy, cfg.Steps = true, "", "policy-of-"+run, steps
		cfg.Staleness.Max = 100
		cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
		if run == poison {
			cfg.Feeds = append(cfg.Feeds, runfile.Feed{Name: "second", GroupsPerBatch: 1})
		}
		servicetest.OpenRun(t, p.log, run, cfg)
	}
	for _, service := range []planes.Service{intake.Run, querysampler.Run, advantagecalculator.Run,
		p.feed, deadletters.Run} {
		env := servicetest.Env(t, p.log)
		env.Logger = slog.New(p.told)
		servicetest.Start(t, func(ctx context.Context) error { return service(ctx, env) })
	}
	p.step(healthy)
	p.step(poison)
	p.second(1)
	return p
}

// feed is the trainer feeder, of which one feed can be jammed.
func (p *plane) feed(ctx context.Context, env pipeline.Env) error {
	return pipeline.RunDeciding(ctx, env, pipeline.Deciding{
		Name: topology.TrainerFeeder,
		New: func(run string, cfg runfile.RunConfig) (map[string]pipeline.Decider, error) {
			deciders := trainerfeeder.Deciders(run, cfg, p.log.Store())
			if d, ok := deciders["second"]; ok {
				deciders["second"] = jam{d.(*trainerfeeder.Decider), &p.jammed}
			}
			return deciders, nil
		},
	})
}

// submit sends an event to the intake.
func (p *plane) submit(run string, t events.Type, entity string, data any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	p.said++
	_, err := p.log.Submitter.Submit(ctx, eventlog.Submission{Run: run, Type: t, Entity: entity, Data: data,
		ID: fmt.Sprint("said-", p.said)})
	return err
}

func (p *plane) must(run string, t events.Type, entity string, data any) {
	p.t.Helper()
	if err := p.submit(run, t, entity, data); err != nil {
		p.t.Fatal(err)
	}
}

// open opens a group of two whose members have some time.
func (p *plane) open(run, group string, lasts time.Duration) {
	p.t.Helper()
	p.must(run, events.GroupOpenedType, group, events.GroupOpened{Task: "theirs", Size: 2})
	for i := range 2 {
		p.must(run, events.RolloutStartedType, events.RolloutID(group, i),
			events.RolloutStarted{Group: group, Member: i, Task: "theirs", Deadline: time.Now().Add(lasts).UTC()})
	}
}

// finish hands a member's trajectory in.
func (p *plane) finish(run, rollout string) storage.Ref {
	p.t.Helper()
	f := servicetest.Finished(p.t, p.log.Store(), run, rollout, servicetest.Trajectory(run, rollout, "theirs"))
	p.must(run, events.RolloutFinishedType, rollout, f)
	return f.Trajectory
}

func (p *plane) score(run, rollout string, reward float64) storage.Ref {
	p.t.Helper()
	ref := p.finish(run, rollout)
	p.must(run, events.RolloutScoredType, rollout, events.RolloutScored{Reward: reward, Trajectory: ref})
	return ref
}

// step makes the next step of a run: a group, its batch, and the weights that come of it. The
// healthy run must not wait for anything.
func (p *plane) step(run string) {
	p.t.Helper()
	began := time.Now()
	p.steps[run]++
	step := p.steps[run]
	group := fmt.Sprintf("x%d", step)
	p.open(run, group, enough)
	p.score(run, events.RolloutID(group, 0), 1)
	p.score(run, events.RolloutID(group, 1), 0)
	p.batch(run, "trainer", step)
	p.trained(run, step)
	if took := time.Since(began); run == healthy && took > pace {
		p.t.Errorf("step %d of the healthy run took %s", step, took)
	}
}

// batch waits for a feed's batch.
func (p *plane) batch(run, feed string, step int64) {
	p.t.Helper()
	ready := servicetest.Wait(p.t, p.log, run, events.BatchReadyType, feed, int(step))
	if got := servicetest.Data[events.BatchReady](p.t, ready[step-1]).Step; got != step {
		p.t.Fatalf("the batch of step %d has step %d", step, got)
	}
}

// second takes a batch of the poisoned run's second feed.
func (p *plane) second(step int64) {
	p.t.Helper()
	p.batch(poison, "second", step)
	p.must(poison, events.BatchConsumedType, "second", events.BatchConsumed{Step: step})
}

// trained says that the trainer has taken a step, and what the weight
// publisher says of its weights.
func (p *plane) trained(run string, step int64) {
	p.t.Helper()
	p.must(run, events.BatchConsumedType, "trainer", events.BatchConsumed{Step: step})
	w := events.WeightsPublished{Policy: "policy-of-" + run, Version: step, Run: run, ThroughStep: step,
		Manifest: servicetest.Blob(p.t, p.log.Store(), []byte("manifest"))}
	for _, on := range []string{events.Catalogue, run} {
		servicetest.Append(p.t, p.log, servicetest.Event(p.t, on, events.WeightsPublishedType, w.Policy,
			events.Ordinal(step), w))
	}
}

// goesOn lets the healthy run make all its steps but one while time passes, in which the poisoned
// run is to be paused. It gives the pause.
func (p *plane) goesOn() events.RunPaused {
	p.t.Helper()
	for p.steps[healthy] < steps-1 {
		p.step(healthy)
		time.Sleep(10 * time.Second)
	}
	var all []events.RunPaused
	last, err := p.log.Last(p.t.Context(), poison, events.RunPausedType.Kind(), poison)
	if err != nil {
		p.t.Fatal(err)
	}
	chain, err := p.log.History(p.t.Context(), poison, last.Seq)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range chain {
		if e.Type == events.RunPausedType {
			all = append(all, servicetest.Data[events.RunPaused](p.t, e))
		}
	}
	if len(all) != 1 || all[0].Class != events.PauseStuck {
		p.t.Fatalf("the poisoned run was paused %+v, want once", all)
	}
	if err := p.submit(poison, events.GroupOpenedType,
		"xlate", events.GroupOpened{Task: "theirs", Size: 2}); err == nil ||
		!strings.Contains(err.Error(), "is paused") {
		p.t.Errorf("a new group of the paused run: %v", err)
	}
	return all[0]
}

// untouched lets the healthy run end, and holds it to all that Rondo promises: nobody
// has had a word about it.
func (p *plane) untouched() {
	p.t.Helper()
	p.step(healthy)
	servicetest.Wait(p.t, p.log, healthy, events.RunClosedType, healthy, 1)
	report := planes.Prove(p.t, p.log, healthy)
	for _, b := range report.Feeds {
		if b.Trained != 2*steps || b.Started != 2*steps {
			p.t.Errorf("the healthy run's books: %+v", b)
		}
	}
	p.told.mu.Lock()
	defer p.told.mu.Unlock()
	for _, line := range p.told.lines {
		if !strings.Contains(line, "run="+poison) && !strings.Contains(line, "RONDO_"+poison) {
			p.t.Errorf("told: %s", line)
		}
	}
}

// told keeps what services warn of.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (l *told) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *told) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *told) WithGroup(string) slog.Handler                    { return l }
func (l *told) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}
