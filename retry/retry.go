// Package retry says how long to wait before something is tried again. Everything in Rondo that
// tries again does it by a [Policy].
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy is how long to wait between tries: First before the second try, twice as long before
// each further one, at most Most. Half of each wait is random, so that callers that failed
// together do not come back together.
type Policy struct {
	First, Most time.Duration
	// Tries is after how many tries the caller gives up; 0 is never.
	Tries int
}

// Delay is how long to wait after a number of failed tries: between half of the
// policy's wait and all of it.
func (p Policy) Delay(failed int) time.Duration {
	if failed < 1 || p.First <= 0 {
		return 0
	}
	wait := p.Most
	if doublings := min(failed-1, 62); p.First <= p.Most>>doublings {
		wait = p.First << doublings
	}
	return wait/2 + rand.N(wait/2+1)
}

// GivesUp reports whether a caller gives up after a number of failed tries.
func (p Policy) GivesUp(failed int) bool { return p.Tries > 0 && failed >= p.Tries }

// Wait waits after a number of failed tries, and reports whether it was not interrupted.
func (p Policy) Wait(ctx context.Context, failed int) bool { return Sleep(ctx, p.Delay(failed)) }

// Keep calls work again and again, and waits in between, until work is done or the context ends.
// failed is told of each error and of the wait that follows. After work that lasted longer than
// Most the waits begin with First again.
func (p Policy) Keep(ctx context.Context, work func() (done bool, err error),
	failed func(err error, wait time.Duration)) error {
	for failures := 1; ; failures++ {
		began := time.Now()
		done, err := work()
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Since(began) > p.Most:
			failures = 1
		}
		wait := p.Delay(failures)
		failed(err, wait)
		if !Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// Sleep waits, and reports whether it was not interrupted.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}
