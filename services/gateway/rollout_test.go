package gateway

import (
	"context"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestLoadReadsNoTurnTwice: to look a rollout up again takes as much behind many turns as behind few.
func TestLoadReadsNoTurnTwice(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("theirs"))
	servicetest.StartRollout(t, log, "r", "xtheirs-0", "theirs")
	g, turns := &Gateway{log: log}, 0
	allocated := func(upTo int) float64 {
		for ; turns < upTo; turns++ {
			turn := events.TurnSampled{Turn: turns, FinishReason: "stop", Content: "words", TokenIDs: make([]int32, 64), Logprobs: make([]float32, 64), NewSegment: true}
			servicetest.Append(t, log, servicetest.Event(t, "r", events.TurnSampledType, "xtheirs-0", events.Ordinal(turns), turn))
		}
		return testing.AllocsPerRun(20, func() {
			ro, err := g.load(context.Background(), "r", "xtheirs-0", newTenant(Tenant{Name: "default"}))
			if err != nil || len(ro.Turns) != turns {
				t.Fatal(err)
			}
		})
	}
	few, many := allocated(2), allocated(60)
	if many > 1.5*few {
		t.Errorf("%.0f allocations behind 2 turns, %.0f behind 60", few, many)
	}
}
