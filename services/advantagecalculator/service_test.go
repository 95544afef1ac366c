package advantagecalculator

import (
	"context"
	"math"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRestartsKeepTheBaselines: whoever goes on, with what the last one kept or with nothing,
// compares with the baseline that the task's groups have come to.
func TestRestartsKeepTheBaselines(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("t")
	remembering(&cfg) // decay 0.5
	servicetest.OpenRun(t, log, "r", cfg)
	kept := servicetest.Env(t, log)
	baseline := 0.0
	for n, env := range []func() (dir string){
		// the last one is behind
		func() string { return kept.Dir }, func() string { return kept.Dir }, t.TempDir,
		func() string { return kept.Dir },
	} {
		e := kept
		e.Dir = env()
		stop := servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, e) })
		id := events.GroupID(int64(n + 1))
		servicetest.Append(t, log, servicetest.Event(t, "r", events.GroupOpenedType, id,
			"0", events.GroupOpened{Task: "t", Size: 2}))
		var want []float64
		for i, reward := range []float64{1, float64(n)} {
			rollout := events.RolloutID(id, i)
			servicetest.StartRollout(t, log, "r", rollout, "t")
			servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutScoredType, rollout,
				"0", events.RolloutScored{Reward: reward}))
			want = append(want, reward-baseline)
			baseline = (baseline + reward) / 2
		}
		completed := servicetest.WaitData[events.GroupCompleted](t, log, "r", events.GroupCompletedType, id)
		for i, m := range completed.Members {
			if math.Abs(m.Advantage-want[i]) > 1e-9 {
				t.Errorf("after %d restarts: member %d has the advantage %g, want %g", n, i, m.Advantage, want[i])
			}
		}
		stop()
	}
}
