package feed

import (
	"context"
	"path/filepath"

	"github.com/rondo-rl/rondo/events"
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
	if t.BytesPerToken, err = tokenBytes(rollouts[0].trajectory, len(files[0]), length); err != nil {
		return err
	}
	t.LogPerToken, err = logBytes(rollouts[0].trajectory)
	return err
}

// logBytes is what id and log-probability of a sampled token take in the events of a trajectory's
// turns: what their bodies have more than those of the same turns without sampled tokens.
func logBytes(t *storage.Trajectory) (float64, error) {
	bytes, sampled := 0, 0
	for i := 1; i < len(t.Messages); i += 2 {
		asked, answer := t.Messages[i-1], t.Messages[i]
		turn := events.TurnSampled{Turn: int(answer.Turn), PromptDelta: asked.TokenIDs, TokenIDs: answer.TokenIDs,
			Logprobs: answer.Logprobs, PolicyVersion: answer.PolicyVersion}
		whole, err := events.Encode(turn)
		if err != nil {
			return 0, err
		}
		turn.TokenIDs, turn.Logprobs = nil, nil
		without, err := events.Encode(turn)
		if err != nil {
			return 0, err
		}
		bytes, sampled = bytes+len(whole)-len(without), sampled+len(answer.TokenIDs)
	}
	return float64(bytes) / float64(sampled), nil
}

// tokenBytes is what ids, log-probabilities and mask take of a file: what the file has more
// than one that lacks them.
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
