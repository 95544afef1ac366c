package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/retry"
)

// hearFor is long enough for each generator to speak.
const hearFor = presence.Every + 500*time.Millisecond

// maxGenerators bounds the generators that are counted.
const maxGenerators = 4096

// generatorSlots are those of all generators that speak; 0 where none does.
func generatorSlots(ctx context.Context, nc *nats.Conn) (slots int) {
	generators := presence.NewRoster(maxGenerators)
	stop, err := presence.HearService(nc, topology.Generator,
		func(r presence.Report) { generators.Take(r, time.Now()) })
	if err != nil {
		return 0
	}
	retry.Sleep(ctx, hearFor)
	stop()
	for _, g := range generators.Present(time.Now()) {
		slots += g.Slots
	}
	return slots
}

// scarceSlots names the runs that keep more rollouts under way than the
// generators can sample at once.
func scarceSlots(atOnce map[string]int, slots int) (findings []finding) {
	for _, run := range slices.Sorted(maps.Keys(atOnce)) {
		if n := atOnce[run]; slots > 0 && n > slots {
			findings = append(findings, finding{"runs", levelWarning,
				fmt.Sprintf("run %s keeps %d rollouts under way, and the generators sample %d turns at once", run, n,
					slots),
				fmt.Sprintf("start generators with more --generator-slots, or lower in_flight of the run to %d",
					slots)})
		}
	}
	return findings
}
