package pipeline

import (
	"context"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

// outlastFor is how long work that was done waits in its place for the end of an outage. Most are over by then, and what was sampled or run is not done
// twice.
const outlastFor = 2 * time.Minute

// Outlast does something again as long as it fails by an outage, for outlastFor at most. It is for the end of work that is dear: what the outage keeps
// from being stored is lost when the input waits.
func Outlast(ctx context.Context, do func() error) error {
	began := time.Now()
	for failed := 1; ; failed++ {
		err := do()
		if Outage(err) == "" || ctx.Err() != nil {
			return err
		}
		wait := parkAgain.Delay(failed)
		if time.Since(began)+wait > outlastFor || !retry.Sleep(ctx, wait) {
			return err
		}
	}
}
