// Package trainer is the reference trainer's loop. It is an outsider like any other trainer: it
// follows a feed's batch_ready facts, reads the batch files, and states consumed, checkpointed,
// rewound and weights_submitted to the intake.
package trainer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// Config of one trainer.
type Config struct {
	Log    *eventlog.Log
	Run    string
	Feed   string
	Policy string // whose weights are trained
	// Dir holds the checkpoint. A trainer that finds one there goes on from it.
	Dir     string
	Options policy.Options
	Logger  *slog.Logger
}

// source is who the trainer says it is.
const source = "reference-trainer"

// answerTimeout bounds one statement to the intake before it is repeated.
const answerTimeout = 10 * time.Second

// Run trains until the context ends or the feed fails for good. Training is deterministic: a
// trainer that was killed and restarted publishes the same weights as one that was not.
func Run(ctx context.Context, cfg Config) error {
	t, err := open(cfg)
	if err != nil {
		return err
	}
	if err := t.resume(ctx); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return fmt.Errorf("begin run %s: %w", t.Run, err)
	}
	filter := events.Event{Run: cfg.Run, Type: events.BatchReadyType, Entity: cfg.Feed}.Subject()
	return cfg.Log.Follow(ctx, cfg.Run, 1, filter, func(e events.Event) error {
		ready, err := events.Data[events.BatchReady](e)
		if err != nil || ready.Step <= t.checkpoint.Step {
			return err
		}
		return t.step(ctx, ready)
	})
}

type trainer struct {
	Config
	learner    *policy.Trainer
	checkpoint checkpoint
	// session tells the statements of this process from those of one that was killed.
	session string
	last    []byte // the file that it has submitted last
}

func open(cfg Config) (*trainer, error) {
	t := &trainer{Config: cfg}
	var id [4]byte
	rand.Read(id[:])
	t.session = hex.EncodeToString(id[:])
	var err error
	t.checkpoint, t.learner, err = loadCheckpoint(cfg.Dir, cfg.Options)
	return t, err
}

// resume brings checkpoint and log together, and repeats what the log may not have
// of the checkpoint: weights that were trained and not submitted, and steps that
// were trained and not stated.
func (t *trainer) resume(ctx context.Context) error {
	if t.checkpoint.Version > 0 {
		if err := t.meetLog(ctx); err != nil {
			return err
		}
		if err := t.publish(ctx); err != nil {
			return err
		}
	}
	var consumed events.BatchConsumed
	last, err := t.Log.LastOfType(ctx, t.Run, events.BatchConsumedType, t.Feed)
	if err == nil {
		consumed, err = events.Data[events.BatchConsumed](last)
	} else if errors.Is(err, eventlog.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return err
	}
	if consumed.Step > t.checkpoint.Step {
		return t.state(ctx, t.Run, events.BatchRewoundType, t.Feed, fmt.Sprintf("rewound-%d", t.checkpoint.Step),
			events.BatchRewound{ToStep: t.checkpoint.Step})
	}
	for step := consumed.Step + 1; step <= t.checkpoint.Step; step++ {
		if err := t.consume(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// begin takes the weights of the version that the run begins at, where there is no checkpoint
// yet: those of a run that it continues, or of any other run of its policy. The run's own
// versions follow that one.
func (t *trainer) begin(ctx context.Context) error {
	if t.checkpoint.Version > 0 {
		return nil
	}
	first, err := t.Log.Event(ctx, t.Run, 1)
	if err != nil {
		return err
	}
	opened, err := events.Data[events.RunOpened](first)
	version := opened.BeginsAt()
	if err != nil || version == 0 {
		return err
	}
	_, files, err := weights.Fetch(ctx, t.Log.Store(), t.Policy, version)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Name != modelFile {
			continue
		}
		t.checkpoint.Version, t.last = version, file.Data
		return t.learner.Begin(file.Data)
	}
	return fmt.Errorf("version %d of policy %s has no file %s: the built-in trainer trains the built-in policy only",
		version, t.Policy, modelFile)
}

// consume states that the trainer has a step's batch.
func (t *trainer) consume(ctx context.Context, step int64) error {
	return t.state(ctx, t.Run, events.BatchConsumedType, t.Feed, fmt.Sprintf("consumed-%d", step),
		events.BatchConsumed{Step: step})
}

// step trains on one batch.
func (t *trainer) step(ctx context.Context, ready events.BatchReady) error {
	samples, err := t.read(ctx, ready)
	if err != nil {
		return fmt.Errorf("step %d: %w", ready.Step, err)
	}
	if err := t.consume(ctx, ready.Step); err != nil {
		return err
	}
	stats, err := t.learner.Step(samples)
	if err != nil {
		return fmt.Errorf("step %d: %w", ready.Step, err)
	}
	t.Logger.Debug("trained", "run", t.Run, "step", ready.Step, "reward", ready.RewardMean, "kl", stats.KL,
		"entropy", stats.Entropy)
	t.checkpoint.trained(ready)
	if err := saveCheckpoint(t.Dir, t.checkpoint, t.learner); err != nil {
		return err
	}
	if err := t.publish(ctx); err != nil {
		return err
	}
	return t.state(ctx, t.Run, events.BatchCheckpointedType, t.Feed, fmt.Sprintf("checkpointed-%d", ready.Step),
		events.BatchCheckpointed{Step: ready.Step})
}

// read fetches a batch and checks that it is the one that the fact names.
func (t *trainer) read(ctx context.Context, ready events.BatchReady) ([]policy.TrainingSample, error) {
	if len(ready.Files) != 1 {
		return nil, fmt.Errorf("the fact names %d files, but this trainer is one rank", len(ready.Files))
	}
	data, err := storage.GetBlob(ctx, t.Log.Store(), ready.Files[0])
	if err != nil {
		return nil, err
	}
	batch, err := storage.DecodeBatch(data)
	if err != nil {
		return nil, err
	}
	return samplesOf(batch)
}

// samplesOf are the samples of a batch as the policy trains on them. It sees no images.
func samplesOf(batch *storage.Batch) ([]policy.TrainingSample, error) {
	samples := make([]policy.TrainingSample, len(batch.Samples))
	for i, s := range batch.Samples {
		if len(s.Images) > 0 {
			return nil, fmt.Errorf("sample %d of rollout %s has images, and the built-in policy sees none: train on it with a trainer of a model that does",
				s.SampleIndex, s.Rollout)
		}
		samples[i] = policy.TrainingSample{Tokens: s.Tokens, LossMask: s.LossMask, SamplerLogprobs: s.SamplerLogprobs,
			Advantages: s.Advantages}
	}
	return samples, nil
}

// publish submits the checkpoint's weights. The version counts the steps that were trained since
// the version that the run began at, so training again from an older checkpoint gives the same
// weights under the same version.
func (t *trainer) publish(ctx context.Context) error {
	data, err := t.learner.Weights()
	if err != nil {
		return err
	}
	wish, err := t.upload(ctx, data)
	if err != nil {
		return err
	}
	return t.state(ctx, events.Catalogue, events.WeightsSubmittedType, t.Policy,
		fmt.Sprintf("%s-%s-%d", t.Run, t.Feed, t.checkpoint.Version), wish)
}

// state states a fact until the intake answers.
func (t *trainer) state(ctx context.Context, run string, typ events.Type, entity, id string, data any) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err := t.Log.Submitter.Submit(attempt, eventlog.Submission{
			Run: run, Type: typ, Entity: entity, Data: data, Source: source,
			ID: t.Run + "-" + id + "-" + t.session,
		})
		cancel()
		if err == nil || errors.Is(err, eventlog.ErrRefused) || ctx.Err() != nil {
			return err
		}
		t.Logger.Warn("intake not answering", "run", run, "type", typ, "error", err)
	}
}
