package scorer

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// byFeedback states the reward that users gave, when they gave one. Whatever comes last on the log,
// the end of the episode or the feedback, its handler sees both.
func byFeedback(ctx context.Context, log eventlog.Reader, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]events.Event, error) {
	given, ok, err := feedback(ctx, log, r.Run, r.ID)
	if err != nil || !ok {
		return nil, err
	}
	components := map[string]float64{runfile.FeedbackComponent: given}
	reward, err := cfg.Scorer.Reward(components)
	if err != nil {
		return nil, err
	}
	fact, err := r.Next(events.RolloutScoredType, "0", events.RolloutScored{
		Reward: reward, Components: components, TaskDigest: task.Digest,
		Trajectory: r.Finished.Trajectory, TextOnly: r.Finished.TextOnly,
	})
	return []events.Event{fact}, err
}

// feedback is the last reward that users gave a rollout: they may change their
// minds until it is scored.
func feedback(ctx context.Context, log eventlog.Reader, run, rollout string) (reward float64, given bool, err error) {
	link, err := log.LastOfType(ctx, run, events.FeedbackRecordedType, rollout)
	if errors.Is(err, eventlog.ErrNotFound) {
		return 0, false, nil
	}
	for ; err == nil; link, err = log.Event(ctx, run, link.Prev) {
		f, err := events.Data[events.FeedbackRecorded](link)
		if err != nil {
			return 0, false, err
		}
		if reward, given = f.Score(); given || link.Prev == 0 {
			return reward, given, nil
		}
	}
	return 0, false, err
}
