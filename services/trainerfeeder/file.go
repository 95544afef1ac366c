package trainerfeeder

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Complete writes the file of a decided batch and names it in the fact. The file follows from immutable
// trajectories and the folded state alone, so completing the same fact again gives the same bytes.
func (d *Decider) Complete(ctx context.Context, v projection.View, fact events.Event) (events.Event, error) {
	if fact.Type != events.BatchReadyType {
		return fact, nil
	}
	ready, err := events.Data[events.BatchReady](fact)
	if err != nil {
		return fact, err
	}
	batch, err := d.assemble(ctx, v, ready)
	if err != nil {
		return fact, fmt.Errorf("batch %d of feed %s: %w", ready.Step, d.feed.Name, err)
	}
	data, err := storage.EncodeBatch(batch)
	if err != nil {
		return fact, fmt.Errorf("batch %d of feed %s: %w", ready.Step, d.feed.Name, err)
	}
	key := fmt.Sprintf("runs/%s/batches/%s/%s", d.run, d.feed.Name, events.StepKey(ready.Step))
	ref, err := storage.PutNamed(ctx, d.store, key, ".arrow", data)
	if err != nil {
		return fact, fmt.Errorf("batch %d of feed %s: %w", ready.Step, d.feed.Name, err)
	}
	ready.File, ready.Samples = &ref, len(batch.Samples)
	for _, s := range batch.Samples {
		ready.Tokens += int64(len(s.Tokens))
	}
	fact.Data, err = json.Marshal(ready)
	return fact, err
}

// assemble reads the trajectories of a batch's members into samples, in the order of the fact.
func (d *Decider) assemble(ctx context.Context, v projection.View, ready events.BatchReady) (*storage.Batch, error) {
	batch := &storage.Batch{Run: d.run, Feed: d.feed.Name, Step: ready.Step}
	for _, id := range ready.Groups {
		place, _, err := projection.Get[string](v, placeOf+id)
		if err != nil {
			return nil, err
		}
		g, ok, err := projection.Get[pending](v, waiting+place)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("group %s is not waiting", id)
		}
		for _, m := range g.Members {
			if m.Skip != "" {
				continue
			}
			samples, err := d.samples(ctx, m, ready.Staleness+ready.MinVersion-g.DispatchVersion)
			if err != nil {
				return nil, err
			}
			batch.Samples = append(batch.Samples, samples...)
		}
	}
	return batch, nil
}

// samples reads one member's trajectory; every sample of it carries the member's reward and advantage.
func (d *Decider) samples(ctx context.Context, m member, staleness int64) ([]storage.Sample, error) {
	data, err := storage.GetBlob(ctx, d.store, m.Trajectory)
	if err != nil {
		return nil, fmt.Errorf("trajectory of %s: %w", m.Rollout, err)
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		return nil, fmt.Errorf("trajectory of %s: %w", m.Rollout, err)
	}
	samples := trajectory.Samples()
	for i := range samples {
		s := &samples[i]
		s.Reward, s.Staleness = float32(m.Reward), int32(staleness)
		s.Advantages = make([]float32, len(s.Tokens))
		for t, trained := range s.LossMask {
			if trained {
				s.Advantages[t] = float32(m.Advantage)
			}
		}
	}
	return samples, nil
}
