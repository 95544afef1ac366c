package weights

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

// fetchAgain is how long to wait after a fetch that failed, or a log that could not be read.
var fetchAgain = retry.Policy{First: time.Second, Most: 30 * time.Second}

// lookEvery is how often the log is asked for a new version of which nothing was heard: what is
// said while a connection is lost is not repeated.
const lookEvery = 15 * time.Second

// choice says which version is followed: chooseNewest, or one of events.WeightsPromoted's.
type choice func(promoted events.WeightsPromoted, newest int64) int64

// chooseNewest follows what is published, whatever is promoted.
func chooseNewest(_ events.WeightsPromoted, newest int64) int64 { return newest }

// followPolicy tells found of the version of a policy that is chosen, and of each other one that is
// chosen later, until the context ends: it goes on after every failure. failed is told of those.
// Who may read the policy's versions may do it.
func followPolicy(ctx context.Context, nc *nats.Conn, log eventlog.Reader, policy string, choose choice,
	found func(version int64), failed func(err error, wait time.Duration)) error {
	heard, at := make(chan struct{}, 1), int64(-1)
	look := func() error {
		published, some, err := log.Published(ctx, events.Catalogue, policy)
		if err != nil || !some {
			return err
		}
		promoted, err := lastPromotion(ctx, log, policy)
		if err != nil {
			return err
		}
		if version := choose(promoted, published.Version); version != at {
			at = version
			found(at)
		}
		return nil
	}
	hear := func(*nats.Msg) {
		select {
		case heard <- struct{}{}:
		default:
		}
	}
	return fetchAgain.Keep(ctx, func() (bool, error) {
		for _, t := range []events.Type{events.WeightsPublishedType, events.WeightsPromotedType} {
			hearing, err := nc.Subscribe(events.Event{Run: events.Catalogue, Type: t, Entity: policy}.Subject(), hear)
			if err != nil {
				return false, err
			}
			defer hearing.Unsubscribe()
		}
		for {
			if err := look(); err != nil {
				return false, err
			}
			timer := time.NewTimer(lookEvery)
			select {
			case <-ctx.Done():
				timer.Stop()
				return false, ctx.Err()
			case <-heard:
				timer.Stop()
			case <-timer.C:
			}
		}
	}, failed)
}

// lastPromotion is what was promoted of a policy last, the zero value where nothing was.
func lastPromotion(ctx context.Context, log eventlog.Reader, policy string) (events.WeightsPromoted, error) {
	last, err := log.LastOfType(ctx, events.Catalogue, events.WeightsPromotedType, policy)
	if errors.Is(err, eventlog.ErrNotFound) {
		return events.WeightsPromoted{}, nil
	}
	if err != nil {
		return events.WeightsPromoted{}, err
	}
	return events.Data[events.WeightsPromoted](last)
}
