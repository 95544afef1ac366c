package schedules

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// weights of the smallest of models: what they were trained on, in which order.
type weights struct {
	Step    int64
	Batches map[int64]int // step → how often it was trained on
	Chain   [sha256.Size]byte
}

func (w weights) clone() weights {
	w.Batches = maps.Clone(w.Batches)
	if w.Batches == nil {
		w.Batches = map[int64]int{}
	}
	return w
}

// train takes one optimisation step: the same batch on the same weights gives the same weights.
func (w *weights) train(step int64, digest string) {
	w.Step = step
	w.Batches[step]++
	w.Chain = sha256.Sum256(append(w.Chain[:], digest...))
}

// trainer is one training, over all the lives of its process.
type trainer struct {
	plane
	run   string
	every int64 // steps between checkpoints
	steps int64 // of the whole training
	rng   *rand.Rand
	died  *deaths
	// saved is the checkpoint, which outlives the process.
	saved weights
	// seen are the digests of the batches as they were delivered for the first time.
	seen  map[int64]string
	lives int
	// redelivered counts batches that came again.
	redelivered int
}

// live lets the trainer train, die and come back until all steps are trained. It
// returns the final weights.
func (tr *trainer) live(ctx context.Context) (weights, error) {
	for {
		tr.lives++
		now := tr.saved.clone()
		err := tr.process(ctx, &now)
		if !errors.Is(err, errKilled) {
			return now, err
		}
		time.Sleep(time.Duration(tr.rng.IntN(5)) * time.Second) // until somebody restarts it
	}
}

// errDone ends a training.
var errDone = errors.New("done")

// process is one life: it resumes from the checkpoint as the recipe says, then
// trains batch after batch.
func (tr *trainer) process(ctx context.Context, now *weights) error {
	if now.Step == tr.steps {
		return nil // it died when all was saved
	}
	last, err := tr.log.LastOfType(ctx, tr.run, events.BatchConsumedType, feedName)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	if err == nil {
		consumed, err := events.Data[events.BatchConsumed](last)
		if err != nil {
			return err
		}
		if consumed.Step > now.Step {
			if err := tr.say(ctx, events.BatchRewoundType, now.Step,
				events.BatchRewound{ToStep: now.Step}); err != nil {
				return err
			}
		}
	}
	ready := events.Event{Run: tr.run, Type: events.BatchReadyType, Entity: feedName}.Subject()
	err = tr.log.Follow(ctx, tr.run, 1, ready, func(e events.Event) error {
		batch, err := events.Data[events.BatchReady](e)
		if err != nil || batch.Step <= now.Step {
			return err
		}
		return tr.step(ctx, now, batch)
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

func (tr *trainer) step(ctx context.Context, now *weights, batch events.BatchReady) error {
	digest, err := tr.read(ctx, batch)
	if err != nil {
		return err
	}
	if err := tr.dies("trainer before consumed"); err != nil {
		return err
	}
	if err := tr.say(ctx, events.BatchConsumedType, batch.Step, events.BatchConsumed{Step: batch.Step}); err != nil {
		return err
	}
	if err := tr.dies("trainer after consumed"); err != nil {
		return err
	}
	now.train(batch.Step, digest)
	if err := tr.publish(ctx, batch.Step); err != nil {
		return err
	}
	if batch.Step%tr.every == 0 || batch.Step == tr.steps {
		if err := tr.dies("trainer before checkpoint"); err != nil {
			return err
		}
		tr.saved = now.clone()
		if err := tr.dies("trainer before checkpointed"); err != nil {
			return err
		}
		if err := tr.say(ctx, events.BatchCheckpointedType, batch.Step,
			events.BatchCheckpointed{Step: batch.Step}); err != nil {
			return err
		}
		if err := tr.dies("trainer after checkpointed"); err != nil {
			return err
		}
	}
	if batch.Step == tr.steps {
		return errDone
	}
	return nil
}

// read fetches a batch, and holds it against its first delivery byte by byte.
func (tr *trainer) read(ctx context.Context, batch events.BatchReady) (string, error) {
	sum := sha256.New()
	for _, ref := range batch.Files {
		data, err := storage.GetBlob(ctx, tr.log.Store(), ref)
		if err != nil {
			return "", err
		}
		if _, err := storage.DecodeBatch(data); err != nil {
			return "", err
		}
		sum.Write(data)
	}
	digest := fmt.Sprintf("%x", sum.Sum(nil))
	first, again := tr.seen[batch.Step]
	if again {
		tr.redelivered++
	}
	if again && first != digest {
		return "", fmt.Errorf("step %d came again with other bytes", batch.Step)
	}
	tr.seen[batch.Step] = digest
	return digest, nil
}

// publish states the weights of a step as the weight publisher does: versions only grow.
func (tr *trainer) publish(ctx context.Context, step int64) error {
	last, err := tr.log.LastOfType(ctx, tr.run, events.WeightsPublishedType, "policy")
	if err == nil {
		published, err := events.Data[events.WeightsPublished](last)
		if err != nil || published.Version >= step {
			return err
		}
	} else if !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	return tr.state(ctx, tr.run, events.WeightsPublishedType, "policy", events.Ordinal(step),
		events.WeightsPublished{Policy: "policy", Version: step, Run: tr.run, ThroughStep: step, Manifest: tr.blob})
}

// say states a fact of this life about a step.
func (tr *trainer) say(ctx context.Context, typ events.Type, step int64, data any) error {
	return tr.state(ctx, tr.run, typ, feedName, fmt.Sprintf("%d-%d", step, tr.lives), data)
}

// dies kills the trainer every now and then, about once between two checkpoints, so that it comes
// to the next one at last.
func (tr *trainer) dies(where string) error {
	if tr.rng.Int64N(6+2*tr.every) > 0 {
		return nil
	}
	tr.died.add(where)
	return errKilled
}
