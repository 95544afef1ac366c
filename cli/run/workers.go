package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
)

// A worker that waits for work asks again at once: who is seen in none of
// several looks is not there.
const (
	looksAtWorkers = 4
	lookEvery      = 250 * time.Millisecond
)

// unserved says how many rollouts wait for workers of users' own, where none asks for work or has
// some; nil for none. The intake makes these consumers for runs that have such workers.
func unserved(ctx context.Context, log *eventlog.Log, run string) (waits []string, err error) {
	wants := map[string]string{topology.EpisodesConsumer: "begins them as their environment",
		topology.RatingsConsumer: "rates them"}
	for _, spec := range topology.ConsumersOf(topology.Environment) {
		n, err := idle(ctx, log, run, spec.Name)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			waits = append(waits,
				fmt.Sprintf("no worker asks for work that %s: %s: docs/guide/environments.md says how one is started",
					wants[spec.Name], waiting(n)))
		}
	}
	return waits, nil
}

// idle is how many messages a consumer has for whom nobody asks and that nobody has; 0 where
// somebody does, or where there is no such consumer.
func idle(ctx context.Context, log *eventlog.Log, run, consumer string) (pending uint64, err error) {
	for look := range looksAtWorkers {
		if look > 0 && !retry.Sleep(ctx, lookEvery) {
			return 0, ctx.Err()
		}
		c, err := log.JetStream().Consumer(ctx, events.RunStream(run), consumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		info := c.CachedInfo()
		if pending = info.NumPending; pending == 0 || info.NumWaiting > 0 || info.NumAckPending > 0 {
			return 0, nil
		}
	}
	return pending, nil
}

func waiting(n uint64) string {
	if n == 1 {
		return "1 rollout waits"
	}
	return fmt.Sprintf("%d rollouts wait", n)
}
