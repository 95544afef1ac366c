package providers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestUselessServers: a training run at a server of which nothing can be trained on, or
// at which most rollouts fail while others succeed, is paused, and says why. Neither
// burns inference for ever.
func TestUselessServers(t *testing.T) {
	for name, c := range map[string]struct {
		dialect dialect
		faults  func(n int) fault
		change  func(*runfile.RunConfig)
		class   string
		says    string
		most    int // requests
	}{
		"no token ids": {llamacpp{}, well, nil, events.PauseUntrainable,
			"lacks: prompt_token_ids, token_ids", 200},
		"every second call": {vllm{}, func(n int) fault { return []fault{none, broken}[n%2] },
			func(c *runfile.RunConfig) { c.Limits.Tries = 1 }, events.ClassEndpoint,
			"failed at the stage generator", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, c.dialect, 8, agent, c.faults)
			p := newPlaneOf(t, func(cfg *runfile.RunConfig) {
				cfg.GroupSize = 4
				if c.change != nil {
					c.change(cfg)
				}
			}, s)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			enough := errors.New("enough")
			var paused *events.RunPaused
			open := 0 // rollouts: those that are in flight when the run is paused go on
			if err := p.log.Follow(ctx, "r", 1, "", func(e events.Event) error {
				switch e.Type {
				case events.RunPausedType:
					now := servicetest.Data[events.RunPaused](t, e)
					paused = &now
				case events.RolloutStartedType:
					open++
				case events.RolloutScoredType, events.RolloutFailedType:
					open--
				}
				if paused != nil && open == 0 {
					return enough
				}
				return nil
			}); !errors.Is(err, enough) {
				t.Fatalf("the run is not paused and at rest: %v", err)
			}
			if paused.Class != c.class || !strings.Contains(paused.Reason, c.says) {
				t.Errorf("paused by %q: %s", paused.Class, paused.Reason)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.asked > c.most {
				t.Errorf("the server was asked %d times before the run was paused", s.asked)
			}
		})
	}
}
