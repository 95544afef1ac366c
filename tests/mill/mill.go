// Package mill is a plane without models, tools and sandboxes: the intake, the deciding
// services and the dead letters are the real ones, and generator, scorer and trainer are
// played. A run of some groups takes it a second. Tests let things go wrong around it, and hold
// the run to what Rondo promises.
package mill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/deadletters"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
)

// Every run has one feed, and trains one policy.
const (
	feed   = "trainer"
	policy = "policy"
)

// Mill is the plane of one process.
type Mill struct {
	Log *eventlog.Log
	// Dir is for what deciders have folded; Instance names the process.
	Dir, Instance string
	Logger        *slog.Logger
	// Only names the services that run here; nil are all of them.
	Only []string
	// Repeat, if set, says of an input whether it comes again although its events are on the log.
	Repeat func(m pipeline.Message) bool
	// Slots are how many inputs generator and scorer have in work at once; 0 are eight.
	Slots int
	// Working, if set, is called by a handler in the middle of its input: when it has looked at the
	// log, and before it answers.
	Working func(ctx context.Context, service string)
	// Score, if set, plays the scorer: a score or a failure.
	Score func(rollout string, finished events.RolloutFinished) (events.Type, any)
	// Step is how long the trainer takes for a batch.
	Step time.Duration
}

// Run runs all services and the trainer of the named runs until the context ends.
func (p *Mill) Run(ctx context.Context, runs ...string) error {
	env := pipeline.Env{Log: p.Log, Dir: p.Dir, Logger: p.Logger, Instance: p.Instance}
	work, ctx := errgroup.WithContext(ctx)
	for name, service := range map[string]func(context.Context, pipeline.Env) error{
		topology.Intake: intake.Run, topology.QuerySampler: querysampler.Run,
		topology.AdvantageCalculator: advantagecalculator.Run, topology.TrainerFeeder: trainerfeeder.Run,
		topology.DeadLetters: deadletters.Run,
		topology.Generator:   p.effect(topology.Generator, events.RolloutStartedType, p.generate),
		topology.Scorer:      p.effect(topology.Scorer, events.RolloutFinishedType, p.score),
	} {
		if p.Only != nil && !slices.Contains(p.Only, name) {
			continue
		}
		work.Go(func() error {
			if err := service(ctx, env); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	for _, run := range runs {
		work.Go(func() error { return p.train(ctx, run) })
	}
	return work.Wait()
}

var errRepeat = errors.New("this input comes again")

// effect is a service that answers facts of one type, each with one fact behind
// it on the rollout's chain.
func (p *Mill) effect(name string, of events.Type, answer func(context.Context, events.Event) (events.Type, any,
	error)) func(context.Context, pipeline.Env) error {
	handle := func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		last, err := m.Log.Last(ctx, m.Event.Run, of.Kind(), m.Event.Entity)
		if err != nil || last.Type != of {
			return nil, err // another one was faster
		}
		if p.Working != nil {
			p.Working(ctx, name)
		}
		typ, data, err := answer(ctx, m.Event)
		if err != nil {
			return nil, err
		}
		fact, err := events.New(m.Event.Run, typ, m.Event.Entity, "0", data)
		fact.Prev = last.Seq
		return []events.Event{fact}, err
	}
	recorded := func(_ context.Context, m pipeline.Message, _ []events.Event) error {
		if p.Repeat != nil && p.Repeat(m) {
			return pipeline.RetryAfter(errRepeat, 10*time.Millisecond)
		}
		return nil
	}
	return func(ctx context.Context, env pipeline.Env) error {
		return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: name, Slots: cmp.Or(p.Slots, 8),
			Handle: handle, Recorded: recorded})
	}
}

func (p *Mill) generate(ctx context.Context, e events.Event) (events.Type, any, error) {
	return Generate(ctx, p.Log.Store(), e)
}

// Generate plays the generator: a started rollout has finished, with a trajectory
// of one turn in the store.
func Generate(ctx context.Context, store storage.Store, e events.Event) (events.Type, any, error) {
	started, err := events.Data[events.RolloutStarted](e)
	if err != nil {
		return "", nil, err
	}
	data, err := storage.EncodeTrajectory(&storage.Trajectory{
		Run: e.Run, Group: started.Group, Rollout: e.Entity, Task: started.Task, StopReason: events.StopFinished,
		DispatchVersion: started.PolicyVersion,
		Messages: []storage.Message{
			{Role: "user", TokenIDs: []int32{1, int32(started.Member)}, Logprobs: []float32{0, 0},
				LossMask: []bool{false, false}, PolicyVersion: -1},
			{Index: 1, Role: "assistant", TokenIDs: []int32{7, 8}, Logprobs: []float32{-1, -2},
				LossMask: []bool{true, true}, PolicyVersion: started.PolicyVersion},
		},
	})
	if err != nil {
		return "", nil, err
	}
	ref, err := storage.PutNamed(ctx, store, "runs/"+e.Run+"/trajectories/"+e.Entity, ".arrow", data)
	return events.RolloutFinishedType, events.RolloutFinished{
		Task: started.Task, StopReason: events.StopFinished, Turns: 1, Tokens: 4, Sampled: 2,
		Samples: 1, Trajectory: ref,
		MinVersion: started.PolicyVersion, MaxVersion: started.PolicyVersion,
	}, err
}

// score plays the scorer.
func (p *Mill) score(_ context.Context, e events.Event) (events.Type, any, error) {
	finished, err := events.Data[events.RolloutFinished](e)
	if p.Score != nil {
		typ, data := p.Score(e.Entity, finished)
		return typ, data, err
	}
	reward := float64((e.Entity[len(e.Entity)-1] - '0') % 2)
	return events.RolloutScoredType, events.RolloutScored{Reward: reward,
		Components: map[string]float64{"reward": reward}, Trajectory: finished.Trajectory}, err
}

// train plays the trainer: it takes every batch, each a second time as a client does whose answer
// was lost, and ends the run with the last step.
func (p *Mill) train(ctx context.Context, run string) error {
	ready := events.Event{Run: run, Type: events.BatchReadyType, Entity: feed}.Subject()
	return again.Keep(ctx, func() (bool, error) {
		err := p.Log.Follow(ctx, run, 1, ready, func(e events.Event) error {
			batch, err := events.Data[events.BatchReady](e)
			if err != nil {
				return err
			}
			if p.Step > 0 && !retry.Sleep(ctx, p.Step) {
				return ctx.Err()
			}
			for range 2 {
				_, err := p.Log.Submitter.Submit(ctx, eventlog.Submission{
					Run: run, Type: events.BatchConsumedType, Entity: feed,
					Data: events.BatchConsumed{Step: batch.Step},
					ID:   "consumed-" + strconv.FormatInt(batch.Step, 10),
				})
				if err != nil {
					return err
				}
			}
			cfg, err := p.Log.Config(ctx, run)
			if err == nil && cfg.Staleness.Max < cfg.Steps {
				err = p.publish(ctx, run, batch.Step, cfg.Tasks[0].Snapshot)
			}
			if err != nil || batch.Step < cfg.Steps {
				return err
			}
			_, err = p.Log.Submitter.Submit(ctx, eventlog.Submission{Run: run, Type: events.RunClosedType, Entity: run,
				Data: events.RunClosed{Reason: "all steps are trained"}, ID: "close"})
			return err
		})
		return ctx.Err() != nil, err
	}, func(error, time.Duration) {})
}

// publish plays the weight publisher, for runs that do not go on without new weights.
func (p *Mill) publish(ctx context.Context, run string, step int64, manifest storage.Ref) error {
	fact, err := events.New(run, events.WeightsPublishedType, policy, events.Ordinal(step), events.WeightsPublished{
		Policy: policy, Version: step, Run: run, ThroughStep: step, Manifest: manifest,
	})
	if err != nil {
		return err
	}
	errThere := errors.New("it is published")
	_, _, err = p.Log.Appender.AppendLast(ctx, fact, func(last *events.Event) error {
		if last == nil {
			return nil
		}
		published, err := events.Data[events.WeightsPublished](*last)
		if err == nil && published.Version >= step {
			return errThere
		}
		return err
	})
	if errors.Is(err, errThere) {
		return nil
	}
	return err
}

// again is how long the trainer and whoever opens a run wait before they ask again.
var again = retry.Policy{First: 50 * time.Millisecond, Most: time.Second}

// A step is of so many groups, each of so many rollouts.
const (
	groups, members = 2, 2
	RolloutsPerStep = groups * members
)

// Open opens a run of some steps and asks until that is answered.
func Open(ctx context.Context, log *eventlog.Log, run string, steps int64) error {
	return OpenWith(ctx, log, run, steps, func(*runfile.RunConfig) {})
}

// OpenWith is Open of a run whose configuration differs. change may be called again.
func OpenWith(ctx context.Context, log *eventlog.Log, run string, steps int64, change func(*runfile.RunConfig)) error {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.Steps, cfg.MinVerifier = policy, runfile.BuiltinEndpoint, members,
		steps, runfile.VerifierUnguarded
	cfg.Feeds = []runfile.Feed{{Name: feed, GroupsPerBatch: groups, Ranks: 1}}
	cfg.InFlight, cfg.Staleness = 0, runfile.Staleness{Max: steps + 1, Policy: runfile.StaleKeep}
	return again.Keep(ctx, func() (bool, error) {
		snapshot, err := storage.PutBlob(ctx, log.Store(), []byte("the snapshot of "+run))
		if err != nil {
			return false, err
		}
		cfg.Tasks = []runfile.TaskSpec{{
			Name: "task", Digest: "sha256:task", Workdir: "/app", VerifierTimeout: runfile.Duration(time.Minute),
			Snapshot: snapshot, Tests: snapshot, Instruction: "Do it well.",
		}}
		change(&cfg)
		_, err = log.Submitter.Submit(ctx, eventlog.Submission{Run: run, Type: events.RunOpenedType, Entity: run,
			Data: events.RunOpened{Config: cfg}, ID: "open"})
		return err == nil, err
	}, func(error, time.Duration) {})
}
