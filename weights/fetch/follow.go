package fetch

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

// Again is how long to wait after a fetch that failed, or a log that could not be read.
var Again = retry.Policy{First: time.Second, Most: 30 * time.Second}

// Follow tells found of the last version of a policy that was published, and of each that follows, until the context ends: it goes on after every failure. failed
// is told of those.
func Follow(ctx context.Context, log *eventlog.Log, policy string, found func(version int64), failed func(err error, wait time.Duration)) error {
	newest := int64(-1)
	tell := func(e events.Event) error {
		published, err := events.Data[events.WeightsPublished](e)
		if err == nil && published.Version > newest {
			newest = published.Version
			found(newest)
		}
		return err
	}
	return Again.Keep(ctx, func() (bool, error) {
		from := uint64(1)
		last, err := log.LastOfType(ctx, events.Catalogue, events.WeightsPublishedType, policy)
		if err == nil {
			from = last.Seq + 1
			err = tell(last)
		}
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return false, err
		}
		subject := events.Event{Run: events.Catalogue, Type: events.WeightsPublishedType, Entity: policy}.Subject()
		return false, log.Follow(ctx, events.Catalogue, from, subject, tell)
	}, failed)
}
