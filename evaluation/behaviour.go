package evaluation

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/storage"
)

// Behaviour are the log-probabilities of a rollout's sampled tokens, in order.
func Behaviour(ctx context.Context, store storage.Store, ref storage.Ref) ([]float64, error) {
	data, err := storage.GetBlob(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		return nil, err
	}
	if trajectory.TextOnly {
		return nil, errors.New("it was recorded without tokens and log-probabilities")
	}
	var logprobs []float64
	for _, m := range trajectory.Messages {
		for i, sampled := range m.LossMask {
			if sampled {
				logprobs = append(logprobs, float64(m.Logprobs[i]))
			}
		}
	}
	return logprobs, nil
}
