package trainerfeeder

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Complete writes the files of a decided batch and names them in the fact. The files
// follow from immutable trajectories and the folded state alone, so completing the same
// fact again gives the same bytes.
func (d *Decider) Complete(ctx context.Context, v projection.View, fact events.Event) (events.Event, error) {
	if fact.Type != events.BatchReadyType {
		return fact, nil
	}
	ready, err := events.Data[events.BatchReady](fact)
	if err != nil {
		return fact, err
	}
	if err := d.complete(ctx, v, &ready); err != nil {
		return fact, fmt.Errorf("batch %d of feed %s: %w", ready.Step, d.feed.Name, err)
	}
	fact.Data, err = json.Marshal(ready)
	return fact, err
}

func (d *Decider) complete(ctx context.Context, v projection.View, ready *events.BatchReady) error {
	groups, err := d.load(ctx, v, *ready)
	if err != nil {
		return err
	}
	ranks, err := d.spread(groups)
	if err != nil {
		return err
	}
	ready.Rollouts, ready.LeftOut, ready.MicroBatches = nil, nil, ranks[0].MicroBatches
	var all []*trained
	for r := range ranks {
		all = append(all, ranks[r].members...)
	}
	d.credit(all)
	shortenHints(all)
	whole := storage.Counts{}
	for r := range ranks {
		ranks[r].fill()
		whole = whole.Plus(storage.Count(ranks[r].Samples))
	}
	for _, m := range all {
		ready.Rollouts = append(ready.Rollouts, m.Rollout)
		for i, why := range m.left {
			if ready.LeftOut == nil {
				ready.LeftOut = map[string]string{}
			}
			ready.LeftOut[fmt.Sprintf("%s/%d", m.Rollout, i)] = why
		}
	}
	ready.Samples, ready.Sampled = int(whole.Samples), whole.SampledTokens
	for r := range ranks {
		batch := &ranks[r].Batch
		batch.Run, batch.Feed, batch.Step, batch.Rank, batch.Ranks, batch.Whole = d.run, d.feed.Name,
			ready.Step, r, len(ranks), whole
		batch.Roles = events.RolesIn(d.cfg, "")
		batch.Teachers, batch.Hinter, batch.Hinted = d.feed.Teachers, d.feed.Hints, d.cfg.Hinted(d.feed)
		for i := range batch.Samples {
			ready.Tokens += int64(len(batch.Samples[i].Tokens))
		}
		file, err := d.write(ctx, batch)
		if err != nil {
			return err
		}
		ready.Files = append(ready.Files, file)
	}
	return nil
}

// write stores the file of one rank.
func (d *Decider) write(ctx context.Context, b *storage.Batch) (storage.Ref, error) {
	data, err := storage.EncodeBatch(b)
	if err != nil {
		return storage.Ref{}, err
	}
	name := events.StepKey(b.Step)
	if b.Ranks > 1 {
		name += fmt.Sprintf("-r%d", b.Rank)
	}
	return storage.PutNamed(ctx, d.store, fmt.Sprintf("runs/%s/batches/%s/%s", b.Run, b.Feed, name), ".arrow", data)
}

// trained is a member of a batch with its samples.
type trained struct {
	member
	remarks remarks
	samples []storage.Sample
	left    map[int]string // samples of which no token is trained on, and why
}

// leaveOut takes out the samples of which no token is trained on: a trainer would
// average over a loss of nothing.
func (t *trained) leaveOut() {
	var kept []int
	kept, t.left = storage.Trained(t.samples)
	if len(t.left) == 0 {
		return
	}
	for n, i := range kept {
		t.samples[n] = t.samples[i]
		t.samples[n].SampleIndex, t.samples[n].SamplesInRollout = int32(n), int32(len(kept))
	}
	t.samples = t.samples[:len(kept)]
}

// sampled is the number of tokens that the rollout's advantage is given to.
func (t *trained) sampled() int {
	if len(t.samples) == 0 {
		return 0
	}
	return int(t.samples[0].RolloutSampled)
}

// loading bounds the trajectories that are read at once.
const loading = 16

// load reads the trajectories of a batch's members, by group in the order of the fact.
func (d *Decider) load(ctx context.Context, v projection.View, ready events.BatchReady) ([][]*trained, error) {
	version := ready.Staleness + ready.MinVersion
	groups := make([][]*trained, len(ready.Groups))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(loading)
	for i, id := range ready.Groups {
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
			if d.mask(g, m) != "" {
				continue
			}
			t := &trained{member: m}
			if t.remarks, _, err = projection.Get[remarks](v, remarked+m.Rollout); err != nil {
				return nil, err
			}
			var said *events.RolloutHinted
			if m.Hints != nil {
				stated, _, err := projection.Get[events.RolloutHinted](v, hinted+m.Rollout)
				if err != nil {
					return nil, err
				}
				said = &stated
			}
			groups[i] = append(groups[i], t)
			work.Go(func() error {
				var err error
				t.samples, err = d.samples(ctx, m, said, version)
				t.leaveOut()
				return err
			})
		}
	}
	return groups, work.Wait()
}

// samples reads one member's trajectory; every sample of it carries the member's reward.
func (d *Decider) samples(ctx context.Context, m member, said *events.RolloutHinted,
	version int64) ([]storage.Sample, error) {
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
		s.Run, s.Group, s.Rollout, s.DispatchVersion = d.run, events.GroupOf(m.Rollout), m.Rollout, m.Version
		s.Role = events.RoleOf(d.cfg, s.Group, m.Index)
		s.Reward, s.RewardComponents = number32(m.Reward), m.Components
		s.Staleness, s.Temperature = int32(min(version-m.Version, math.MaxInt32)), number32(d.cfg.Sampling.Temperature)
		d.flag(s, version)
	}
	if err := hint(said, samples); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Rollout, err)
	}
	if err := d.teach(ctx, m, said, samples); err != nil {
		return nil, err
	}
	if !d.filters.TrainConstrained {
		storage.MaskConstrained(samples)
	}
	return samples, nil
}
