package feed

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/storage"
)

// groupsPerBatch is what a batch of a turn holds; shorter turns have one batch.
const groupsPerBatch = 8

// rollout is one trajectory on its way.
type rollout struct {
	id, group  string
	trajectory *storage.Trajectory
	started    uint64 // sequence of its first fact
	file       storage.Ref
	finished   uint64
}

// turn measures one length at one durability.
func turn(ctx context.Context, o Options, length int, durability time.Duration) (t Turn, err error) {
	groups := max(1, o.Tokens/length/groupSize)
	perBatch := min(groupsPerBatch, groups)
	groups -= groups % perBatch
	t = Turn{Tokens: length, Trajectories: groups * groupSize, Durability: name(durability)}
	err = withPlane(ctx, o.Dir, embedded.Options{SyncInterval: durability}, perBatch, func(p plane) error {
		rollouts := make([]*rollout, 0, groups*groupSize)
		texts := newContent(uint64(length))
		for g := range groups {
			group := events.GroupID(int64(g + 1))
			for i := range groupSize {
				r := &rollout{id: events.RolloutID(group, i), group: group}
				r.trajectory = texts.trajectory(run, group, r.id, length)
				rollouts = append(rollouts, r)
			}
		}
		if err := p.start(ctx, rollouts); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		all := float64(len(rollouts)*length) / 1e6
		seconds, err := timed(func() error { return each(ctx, rollouts, p.push) })
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		t.Push = all / seconds
		if seconds, err = p.appendRaw(ctx, rollouts); err != nil {
			return fmt.Errorf("append raw: %w", err)
		}
		t.RawAppend = all / seconds
		if err := t.measureFiles(ctx, p, rollouts, length); err != nil {
			return err
		}
		if err := p.complete(ctx, rollouts); err != nil {
			return fmt.Errorf("complete: %w", err)
		}
		for _, r := range rollouts {
			r.trajectory = nil // the feeder reads the files
		}
		var files []storage.Ref
		seconds, err = timed(func() error {
			return p.withFeeder(ctx, func() (err error) { files, err = p.batches(ctx, groups/perBatch); return err })
		})
		if err != nil {
			return fmt.Errorf("compose: %w", err)
		}
		t.Compose = all / seconds
		return t.measurePull(ctx, o, p, files)
	})
	return t, err
}

// timed runs f after a garbage collection: nothing pays for what came before.
func timed(f func() error) (seconds float64, err error) {
	runtime.GC()
	began := time.Now()
	err = f()
	return time.Since(began).Seconds(), err
}

// each does something to all rollouts, as many at once as the generator would.
func each(ctx context.Context, rollouts []*rollout, do func(context.Context, *rollout) error) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(workers)
	for _, r := range rollouts {
		work.Go(func() error { return do(ctx, r) })
	}
	return work.Wait()
}

// start states what comes before the push.
func (p plane) start(ctx context.Context, rollouts []*rollout) error {
	return each(ctx, rollouts, func(ctx context.Context, r *rollout) error {
		if r.id == events.RolloutID(r.group, 0) {
			if _, err := p.append(ctx, fact(events.GroupOpenedType, r.group,
				"0", events.GroupOpened{Task: task, Size: groupSize})); err != nil {
				return err
			}
		}
		last, err := p.append(ctx, fact(events.RolloutStartedType, r.id,
			"0", events.RolloutStarted{Group: r.group, Task: task, Deadline: time.Now().Add(time.Hour)}))
		r.started = last.Seq
		return err
	})
}

// push is what the generator does with a finished rollout: encode, store, append.
func (p plane) push(ctx context.Context, r *rollout) error {
	data, err := storage.EncodeTrajectory(r.trajectory)
	if err != nil {
		return err
	}
	if r.file, err = storage.PutPacked(ctx, p.log.Store(), "runs/"+run+"/trajectories/"+r.id,
		".arrow", data); err != nil {
		return err
	}
	finished := events.NewRolloutFinished(r.trajectory)
	finished.Trajectory = r.file
	e := fact(events.RolloutFinishedType, r.id, "0", finished)
	e.Prev = r.started
	last, err := p.append(ctx, e)
	r.finished = last.Seq
	return err
}

// complete states what comes between the push and the batch.
func (p plane) complete(ctx context.Context, rollouts []*rollout) error {
	if err := each(ctx, rollouts, func(ctx context.Context, r *rollout) error {
		e := fact(events.RolloutScoredType, r.id, "0", events.RolloutScored{Reward: 1, Trajectory: r.file})
		e.Prev = r.finished
		_, err := p.append(ctx, e)
		return err
	}); err != nil {
		return err
	}
	for at := 0; at < len(rollouts); at += groupSize {
		members := make([]events.Member, groupSize)
		for i := range members {
			members[i] = events.Member{Rollout: rollouts[at+i].id, Reward: 1, Advantage: float64(i) - 3.5}
		}
		opened, err := p.log.Last(ctx, run, events.GroupOpenedType.Kind(), rollouts[at].group)
		if err != nil {
			return err
		}
		e := fact(events.GroupCompletedType, rollouts[at].group,
			"0", events.GroupCompleted{Task: task, Estimator: "mean_centred", Members: members})
		e.Prev = opened.Seq
		if _, err := p.append(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
