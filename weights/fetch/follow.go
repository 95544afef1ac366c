package fetch

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

// Again is how long to wait after a fetch that failed, or a log that could not be read.
var Again = retry.Policy{First: time.Second, Most: 30 * time.Second}

// lookEvery is how often the log is asked for a new version of which nothing was heard: what is said while a connection is lost is not repeated.
const lookEvery = 15 * time.Second

// Follow tells found of the last version of a policy that was published, and of each that follows, until the context ends: it goes on after every failure. failed
// is told of those. Who may read the policy's versions may do it.
func Follow(ctx context.Context, log *eventlog.Log, policy string, found func(version int64), failed func(err error, wait time.Duration)) error {
	heard, newest := make(chan struct{}, 1), int64(-1)
	look := func() error {
		last, err := log.LastOfType(ctx, events.Catalogue, events.WeightsPublishedType, policy)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		published, err := events.Data[events.WeightsPublished](last)
		if err == nil && published.Version > newest {
			newest = published.Version
			found(newest)
		}
		return err
	}
	return Again.Keep(ctx, func() (bool, error) {
		subject := events.Event{Run: events.Catalogue, Type: events.WeightsPublishedType, Entity: policy}.Subject()
		hearing, err := log.Conn().Subscribe(subject, func(*nats.Msg) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return false, err
		}
		defer hearing.Unsubscribe()
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
