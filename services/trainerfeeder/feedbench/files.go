package feedbench

import (
	"context"
	"path/filepath"

	"github.com/rondo-rl/rondo/storage"
)

// measureFiles writes the pushed files raw, and counts their bytes.
func (t *Turn) measureFiles(ctx context.Context, p plane, rollouts []*rollout, length int) error {
	files := make([][]byte, len(rollouts))
	var size int64
	for i, r := range rollouts {
		data, err := storage.GetBlob(ctx, p.log.Store(), r.file)
		if err != nil {
			return err
		}
		files[i] = data
		size += int64(len(data))
	}
	tokens := float64(len(rollouts) * length)
	seconds, err := timed(func() error { return writeRaw(ctx, filepath.Join(filepath.Dir(p.objects), "raw"), files) })
	if err != nil {
		return err
	}
	t.RawWrite, t.FilePerToken = tokens/1e6/seconds, float64(size)/tokens
	t.BytesPerToken, err = tokenBytes(rollouts[0].trajectory, len(files[0]), length)
	return err
}

// tokenBytes is what ids, log-probabilities and mask take of a file: what the file has more than one that lacks them.
func tokenBytes(t *storage.Trajectory, size, tokens int) (float64, error) {
	bare := *t
	bare.Messages = make([]storage.Message, len(t.Messages))
	for i, m := range t.Messages {
		m.TokenIDs, m.Logprobs, m.LossMask = nil, nil, nil
		bare.Messages[i] = m
	}
	without, err := storage.EncodeTrajectory(&bare)
	return float64(size-len(without)) / float64(tokens), err
}
