package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/events"
)

// restartTurns is how many recorded turns an agent has that is started anew: so many
// that its start says little.
const restartTurns = 100

// restart loses an agent behind recorded turns and takes the time from its next start
// until it asks for a new one.
func restart(ctx context.Context, l layer, begin beginning, r *Result, now func(string)) error {
	o := r.Options
	o.AtOnce = 1
	return withPlane(ctx, o, l, func(b *bench) error {
		var mu sync.Mutex
		var again time.Time // when the first new turn was asked for
		lost := false
		b.Server.Begin(restartTurns+1, &scripted.Gates{Turns: []int{restartTurns}, Rollouts: 1,
			Reached: func(ctx context.Context, _ int) {
				b.runner.lose()
				<-ctx.Done() // so that nobody hears the answer
				mu.Lock()
				defer mu.Unlock()
				lost = true
			}}, func(turn int) {
			now(fmt.Sprintf("an agent to be lost behind %d turns: turn %d", restartTurns, turn))
			mu.Lock()
			defer mu.Unlock()
			if turn == restartTurns && lost {
				again = time.Now()
			}
		})
		cfg, err := b.config(ctx, groupSize)
		if err != nil {
			return err
		}
		cfg.GroupSize, cfg.Feeds, cfg.Steps, cfg.Epochs = 1, nil, 0, 1
		if err := b.withAgent(ctx, &cfg, begin); err != nil {
			return err
		}
		run, err := b.Open(ctx, cfg)
		if err != nil {
			return err
		}
		var started time.Time
		return b.until(ctx, run, func(e events.Event) (bool, error) {
			switch e.Type {
			case events.RolloutRetriedType:
				retried, err := events.Data[events.RolloutRetried](e)
				if err == nil && (retried.Behind != restartTurns || !started.IsZero()) {
					err = fmt.Errorf("%s: started anew behind %d turns: %s", e.ID, retried.Behind, retried.Message)
				}
				started = e.Time
				return false, err
			case events.WorkspaceAnsweredType:
				answered, err := events.Data[events.WorkspaceAnswered](e)
				if err != nil {
					return false, err
				}
				if answered.Agent == nil || answered.Agent.Recalled != restartTurns {
					return false, fmt.Errorf("%s: %d turns were expected from the log: %s", e.ID, restartTurns, e.Data)
				}
				mu.Lock()
				defer mu.Unlock()
				r.RestartSeconds = again.Sub(started).Seconds() / restartTurns
				return true, nil
			}
			return false, nil
		})
	})
}
