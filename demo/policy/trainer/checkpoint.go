package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/demo/policy"
)

// checkpoint is where training goes on after a crash.
type checkpoint struct {
	Step int64 `json:"step"`
	// Version is that of the weights.
	Version int64 `json:"version"`
	// Batches are the last ones that it was trained on, the oldest first.
	Batches []batch `json:"batches"`
	// Learner is the learner's whole state.
	Learner []byte `json:"learner"`
}

const checkpointFile = "checkpoint.json"

// loadCheckpoint reads the checkpoint of a directory; without one training begins.
func loadCheckpoint(dir string, o policy.Options) (checkpoint, *policy.Trainer, error) {
	var c checkpoint
	learner, err := policy.NewTrainer(o)
	if err != nil {
		return c, nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return c, learner, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil {
		err = learner.Load(c.Learner)
	}
	if err != nil {
		return c, nil, fmt.Errorf("read checkpoint in %s: %w", dir, err)
	}
	return c, learner, nil
}

// saveCheckpoint replaces the checkpoint: after a crash there is the old one or the new one.
func saveCheckpoint(dir string, c checkpoint, learner *policy.Trainer) error {
	var err error
	if c.Learner, err = learner.Save(); err != nil {
		return err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temporary := filepath.Join(dir, checkpointFile+".new")
	if err := writeSynced(temporary, data); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return os.Rename(temporary, filepath.Join(dir, checkpointFile))
}

func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
