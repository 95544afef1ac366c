package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// Count is how many tokens the prompt has that c.Tokens makes, as the first of the run's servers says that counts. Nothing is sampled: a count takes no place at a server, waits for none,
// and says nothing of one. Its error is the context's, or an *inference.Failure.
func (f *Fleet) Count(ctx context.Context, c Call) (int, error) {
	targets, err := f.targets(c)
	if err != nil {
		return 0, err
	}
	if may, _, _ := f.activations.within(c, targets); len(may) > 0 { // all versions count alike, but those that have names are asked by them
		targets = may
	}
	f.mu.Lock()
	now := time.Now()
	failed := resting(targets, now)
	targets = slices.DeleteFunc(targets, func(t target) bool { return t.resting(now) })
	f.mu.Unlock()
	for _, at := range targets {
		n, failure := f.count(ctx, c, at)
		if failure == nil {
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if failed = worthier(failed, failure); failure.Permanent {
			break
		}
	}
	return 0, failed
}

// count asks one server.
func (f *Fleet) count(ctx context.Context, c Call, at target) (n int, failure *inference.Failure) {
	client := inference.Client{HTTP: f.http, APIKey: at.key, MaxTokens: c.Sampling.MaxTokens}
	conv := c.Tokens(at.asked())
	conv.Engine = f.engineOf(ctx, &client, at)
	n, err := client.Count(ctx, at.url, conv)
	if err != nil && !errors.As(err, &failure) {
		failure = &inference.Failure{Class: events.ClassInternal, Permanent: true, Err: err} // the request is no JSON
	}
	if failure != nil && failure.Status == http.StatusNotFound { // another server may have come to this address
		f.setEngine(at, "")
	}
	return n, failure
}
