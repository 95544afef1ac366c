package trainer

import (
	"bytes"
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// modelFile is the one file of a version.
const modelFile = "model.safetensors"

// upload puts the file of the checkpoint's version into the store: as a delta where what this
// process submitted before is published, and else whole. It gives what is to be submitted.
func (t *trainer) upload(ctx context.Context, file []byte) (events.WeightsSubmitted, error) {
	version := t.checkpoint.Version
	digest := storage.Digest(file)
	blob := storage.Ref{Key: weights.FileKey(t.Policy, digest), SHA256: digest, Size: int64(len(file))}
	wish := events.WeightsSubmitted{Version: version, Run: t.Run, ThroughStep: t.checkpoint.Step,
		Files: []events.WeightsFile{{Name: modelFile, Blob: blob}}}
	made, err := t.delta(ctx, version, file)
	if err != nil { // a shortcut: S3 also refuses who may not list a bucket what is not there
		t.Logger.Debug("weights submitted without a delta", "run", t.Run, "version", version, "error", err)
		made = nil
	}
	if wish.Delta = made; made == nil {
		if _, err := t.put(ctx, file); err != nil {
			return wish, err
		}
	}
	t.last = file
	return wish, nil
}

func (t *trainer) put(ctx context.Context, data []byte) (storage.Ref, error) {
	return weights.Upload(ctx, t.Log.Store(), t.Policy, bytes.NewReader(data), int64(len(data)))
}

// delta uploads how a version differs from the one before it. It is nil where the publisher could
// not make the file of it: the one before is not published, as it was rejected or waits, or another
// trainer has published another one.
func (t *trainer) delta(ctx context.Context, version int64, file []byte) (*events.WeightsDelta, error) {
	current, _, err := weights.Current(ctx, t.Log.Store(), t.Policy)
	if err != nil || current >= version || t.last == nil {
		return nil, err
	}
	published, err := weights.FetchManifest(ctx, t.Log.Store(), t.Policy, current)
	if err != nil {
		return nil, err
	}
	if len(published.Files) != 1 || published.Files[0].SHA256 != storage.Digest(t.last) {
		return nil, nil
	}
	made, err := encodeDelta(ctx, t.last, file)
	if err != nil || len(made) > len(file)/2 {
		return nil, err
	}
	blob, err := t.put(ctx, made)
	return &events.WeightsDelta{Base: current, Blob: blob}, err
}

// encodeDelta is the delta from one file to another.
func encodeDelta(ctx context.Context, old, next []byte) ([]byte, error) {
	var opened [2]*safetensors.Checkpoint
	for i, data := range [][]byte{old, next} {
		file, err := safetensors.NewFile(modelFile, bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return nil, err
		}
		if opened[i], err = safetensors.NewCheckpoint(file); err != nil {
			return nil, err
		}
	}
	var made bytes.Buffer
	err := delta.Encode(ctx, &made, opened[0], opened[1])
	return made.Bytes(), err
}
