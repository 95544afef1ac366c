package schedules

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// outcomes plays generator, tools and scorer: every started rollout ends after a
// while, one in sixteen fails.
func (p plane) outcomes(ctx context.Context, run string, rng *rand.Rand) error {
	work, ctx := errgroup.WithContext(ctx)
	filter := events.Event{Run: run, Type: events.RolloutStartedType, Entity: "*"}.Subject()
	work.Go(func() error {
		return p.log.Follow(ctx, run, 1, filter, func(e events.Event) error {
			after, fails, reward := time.Duration(rng.ExpFloat64()*float64(time.Second)),
				rng.IntN(16) == 0, float64(rng.IntN(2))
			work.Go(func() error {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(after):
				}
				return p.end(ctx, e, fails, reward)
			})
			return nil
		})
	})
	return work.Wait()
}

// end ends a rollout.
func (p plane) end(ctx context.Context, e events.Event, fails bool, reward float64) error {
	started, err := events.Data[events.RolloutStarted](e)
	if err != nil {
		return err
	}
	if fails {
		return p.state(ctx, e.Run, events.RolloutFailedType, e.Entity,
			"0", events.RolloutFailed{Stage: events.StageTools, Class: events.ClassSandbox})
	}
	data, err := storage.EncodeTrajectory(&storage.Trajectory{
		Run: e.Run, Group: started.Group, Rollout: e.Entity, Task: started.Task, StopReason: events.StopFinished,
		DispatchVersion: started.PolicyVersion,
		Messages: []storage.Message{
			{Role: "user", TokenIDs: []int32{1, int32(started.Member)}, Logprobs: []float32{0, 0},
				LossMask: []bool{false, false}, PolicyVersion: -1},
			{Index: 1, Role: "assistant", TokenIDs: []int32{7, 8}, Logprobs: []float32{-1, -2},
				LossMask: []bool{true, true}, PolicyVersion: started.PolicyVersion},
		},
	})
	if err != nil {
		return err
	}
	ref, err := storage.PutNamed(ctx, p.log.Store(), "runs/"+e.Run+"/trajectories/"+e.Entity, ".arrow", data)
	if err != nil {
		return err
	}
	finished := events.RolloutFinished{Task: started.Task, StopReason: events.StopFinished, Turns: 1, Tokens: 4,
		Sampled: 2, Samples: 1, Trajectory: ref, MinVersion: started.PolicyVersion, MaxVersion: started.PolicyVersion}
	if err := p.state(ctx, e.Run, events.RolloutFinishedType, e.Entity, "0", finished); err != nil {
		return err
	}
	return p.state(ctx, e.Run, events.RolloutScoredType, e.Entity,
		"0", events.RolloutScored{Reward: reward, Trajectory: ref})
}
