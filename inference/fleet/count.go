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

// Count is how many tokens the prompt has that c.Tokens makes, as the first of the run's servers
// says that counts. Nothing is sampled: a count takes no place at a server, waits for none, and
// says nothing of one. Each server has its share of the time until the context's deadline. Its
// error is the context's, or an *inference.Failure.
func (f *Fleet) Count(ctx context.Context, c Call) (int, error) {
	targets, err := f.targets(c)
	if err != nil {
		return 0, err
	}
	// all versions count alike, but those that have names are asked by them
	if may, _, _ := f.activations.usable(c, targets); len(may) > 0 {
		targets = may
	}
	f.mu.Lock()
	now := time.Now()
	failed := resting(targets, now)
	targets = slices.DeleteFunc(targets, func(t target) bool { return t.resting(now) })
	f.mu.Unlock()
	for i, at := range targets {
		n, failure := f.count(ctx, c, at, len(targets)-i)
		if failure == nil {
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if failure.Permanent {
			return 0, failure
		}
		failed = worthier(failed, failure)
	}
	return 0, failed
}

// count asks one server, which has its part of the time that is left for so many of them.
func (f *Fleet) count(ctx context.Context, c Call, at target, servers int) (n int, failure *inference.Failure) {
	if end, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(servers))
		defer cancel()
	}
	client := inference.Client{HTTP: f.http, APIKey: at.key, MaxTokens: c.Sampling.MaxTokens}
	conv := c.Tokens(at.modelName())
	engine, err := f.engineOf(ctx, &client, at)
	if errors.As(err, &failure) && failure.Status != http.StatusNotFound {
		return 0, failure // engines count otherwise
	}
	failure, conv.Engine = nil, engine
	n, err = client.Count(ctx, at.url, conv)
	if err != nil && !errors.As(err, &failure) {
		failure = &inference.Failure{Class: events.ClassInternal, Permanent: true, Err: err} // the request is no JSON
	}
	switch {
	case failure == nil:
	case at.lacksVersion(failure):
		failure.Throttled, failure.Permanent, failure.After = true, false, lagging
	case failure.Status == http.StatusNotFound && !conv.Chat: // another server may have come to this address
		f.setEngine(at, "")
	}
	return n, failure
}
