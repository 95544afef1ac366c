package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// Bounds of counting: how many prompts are counted at once, and how long that may take, with the wait for a place.
const (
	mostCounts = 16
	countTime  = 30 * time.Second
)

// count answers how many tokens the prompt of a request has. The prompt is made as for a turn, but nothing is sampled: it takes no slot, no turn is bound, and nothing is put on the log.
// Where no server counts, the request is refused, and nothing is guessed. An agent is not judged by it.
func (g *Gateway) count(w *stream, r *http.Request, t *tenant, d dialects.Counting) error {
	share, body, end, err := g.receive(w, r, t)
	if err != nil {
		return err
	}
	defer end()
	a, err := decode(r.Context(), share, d, body)
	if err != nil {
		return err
	}
	n, err := g.tokensOf(r, t, a)
	if err != nil {
		return err
	}
	a.tellWithheld(w)
	return reply(w, http.StatusOK, d.Counted(n))
}

// tokensOf is how many tokens the prompt of a request has.
func (g *Gateway) tokensOf(r *http.Request, t *tenant, a *ask) (int, error) {
	defer t.agent.waits()()
	ctx, cancel := context.WithTimeout(r.Context(), countTime)
	defer cancel()
	leave, err := g.mayCount(ctx, r.PathValue("id"))
	if err != nil {
		return 0, err
	}
	defer leave()
	ro, err := g.find(r.WithContext(ctx), t)
	if err != nil {
		return 0, err
	}
	if err := ro.open(); err != nil {
		return 0, err
	}
	if err := a.chooseSampling(ro.cfg.Sampling); err != nil {
		return 0, err
	}
	if err := a.bind(ro.Turns); err != nil {
		return 0, err
	}
	conv, err := a.byTokens(ro, 0)
	if err != nil {
		return 0, problem(http.StatusBadRequest, "invalid_request_error", "%v", err)
	}
	n, err := g.servers.Count(ctx, fleet.Call{Run: ro.Run, Config: &ro.cfg, Affinity: ro.ID, Sampling: a.sampling, Tokens: conv})
	switch {
	case err == nil:
		return n, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, problem(http.StatusGatewayTimeout, "timeout", "no inference server has counted the tokens of the prompt within %s", countTime)
	case errors.Is(err, inference.ErrUncounted):
		return 0, problem(http.StatusNotFound, "not_supported", "%v", err)
	}
	return 0, failed(ctx, err)
}

// mayCount waits for a place to count a rollout's prompt, which leave gives back. A rollout has one at most, so that none has all of them.
func (g *Gateway) mayCount(ctx context.Context, rollout string) (leave func(), err error) {
	busy := later(time.Second, "overloaded", "no place to count tokens within %s: a rollout has one, and all together have %d; try again", countTime, mostCounts)
	release, err := g.locks.wait(ctx, "counts of "+rollout)
	if err != nil {
		return nil, busy
	}
	select {
	case g.counts <- struct{}{}:
	case <-ctx.Done():
		release()
		return nil, busy
	}
	return func() {
		<-g.counts
		release()
	}, nil
}

// countMessages answers Anthropic's count_tokens.
func (g *Gateway) countMessages(w *stream, r *http.Request, t *tenant) error {
	return g.count(w, r, t, dialects.MessagesCount{})
}
