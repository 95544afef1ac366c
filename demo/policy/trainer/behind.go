package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// batchesKept bounds how many batches a checkpoint names. It bounds how many steps
// a restored log may lack.
const batchesKept = 1000

// batch is a batch that the checkpoint was trained on.
type batch struct {
	Step   int64  `json:"step"`
	SHA256 string `json:"sha256"`
}

// trained notes the batch of a step in the checkpoint.
func (c *checkpoint) trained(ready events.BatchReady) {
	c.Step = ready.Step
	c.Version++
	c.Batches = append(c.Batches, batch{ready.Step, ready.Files[0].SHA256})
	if old := len(c.Batches) - batchesKept; old > 0 {
		c.Batches = c.Batches[old:]
	}
}

// has reports whether the checkpoint was trained on a batch; also where it is too old for the
// batches that the checkpoint names.
func (c *checkpoint) has(ready events.BatchReady) bool {
	for _, b := range c.Batches {
		if b.Step == ready.Step {
			return len(ready.Files) == 1 && b.SHA256 == ready.Files[0].SHA256
		}
	}
	return true
}

// meetLog takes the checkpoint's step back to the last batch that it shares with the log. A log
// that was restored from its archive lacks the last steps that the checkpoint was trained on,
// and the plane fills these steps with new batches. The weights and their version stay:
// training goes on from them.
func (t *trainer) meetLog(ctx context.Context) error {
	step, err := t.shared(ctx)
	if err != nil || step >= t.checkpoint.Step {
		return err
	}
	t.Logger.Warn("checkpoint ahead of log", "run", t.Run, "feed", t.Feed, "checkpoint_step", t.checkpoint.Step,
		"log_step", step, "version", t.checkpoint.Version)
	t.checkpoint.Step = step
	kept := t.checkpoint.Batches[:0]
	for _, b := range t.checkpoint.Batches {
		if b.Step <= step {
			kept = append(kept, b)
		}
	}
	t.checkpoint.Batches = kept
	return saveCheckpoint(t.Dir, t.checkpoint, t.learner)
}

// shared is the last step, at most the checkpoint's, whose batch on the log is the one that the
// checkpoint was trained on. It walks the feed's chain backwards.
func (t *trainer) shared(ctx context.Context) (int64, error) {
	link, err := t.Log.Last(ctx, t.Run, events.BatchReadyType.Kind(), t.Feed)
	for err == nil {
		if link.Type == events.BatchReadyType {
			ready, err := events.Data[events.BatchReady](link)
			if err != nil {
				return 0, err
			}
			if ready.Step <= t.checkpoint.Step && t.checkpoint.has(ready) {
				return ready.Step, nil
			}
		}
		if link.Prev == 0 {
			return 0, nil
		}
		link, err = t.Log.Event(ctx, t.Run, link.Prev)
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		return 0, nil
	}
	return 0, fmt.Errorf("compare the checkpoint with the log: %w", err)
}
