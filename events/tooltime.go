package events

import (
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

// ToolTimeLeft is how long the rollout's tools may still take: half of the run's timeout in all, so that a rollout whose agent only waits ends, and is
// scored, before its deadline makes a failure of it. What a fork has of its origin took none of its own.
func (r *Rollout) ToolTimeLeft(limits runfile.Limits) time.Duration {
	if limits.Timeout == 0 {
		return unbounded
	}
	left := time.Duration(limits.Timeout)/2 - r.toolTime
	for _, turn := range r.Turns[min(max(r.Copied, r.toolsTimed), len(r.Turns)):] {
		left -= r.Tools[turn.Turn].took()
	}
	return left
}

// unbounded is the time of a rollout whose run has no timeout, as only tests make them.
const unbounded = 365 * 24 * time.Hour

// took is the time from the begin of a turn's first call to the end of its last one.
func (t ToolsCompleted) took() time.Duration {
	var begin, end time.Time
	for i, result := range t.Results {
		ended := result.StartedAt.Add(time.Duration(float64(max(0, result.DurationMS) * float64(time.Millisecond))))
		if i == 0 || result.StartedAt.Before(begin) {
			begin = result.StartedAt
		}
		if ended.After(end) {
			end = ended
		}
	}
	return max(0, end.Sub(begin))
}
