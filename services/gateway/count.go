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

// count answers how many tokens the prompt of a request has. It is made as for a turn, and is none: it takes none of the slots, goes on with no turn of the rollout for others, and leaves
// nothing on the log. A server that cannot count is told by name, and nothing is guessed. What becomes of it says nothing of an agent.
func (g *Gateway) count(w *stream, r *http.Request, t *tenant, d dialects.Counting) error {
	share, body, end, err := g.receive(w, r, t)
	if err != nil {
		return err
	}
	defer end()
	defer t.agent.waits()()
	ctx, cancel := context.WithTimeout(r.Context(), countTime)
	defer cancel()
	release, err := g.locks.wait(ctx, "counts of "+r.PathValue("id")) // so that no rollout has all of the places
	if err != nil {
		return busy()
	}
	defer release()
	select {
	case g.counts <- struct{}{}:
		defer func() { <-g.counts }()
	case <-ctx.Done():
		return busy()
	}
	ro, err := g.find(r.WithContext(ctx), t)
	if err != nil {
		return err
	}
	if err := ro.open(); err != nil {
		return err
	}
	a, err := decode(ctx, share, d, body)
	if err != nil {
		return err
	}
	if err := a.chooseSampling(ro.cfg.Sampling); err != nil {
		return err
	}
	if err := a.bind(ro.Turns); err != nil {
		return err
	}
	conv, err := a.byTokens(ro, 0)
	if err != nil {
		return problem(http.StatusBadRequest, "invalid_request_error", "%v", err)
	}
	n, err := g.servers.Count(ctx, fleet.Call{Run: ro.Run, Config: &ro.cfg, Affinity: ro.ID, Sampling: a.sampling, Tokens: conv})
	switch {
	case err == nil:
		a.tellWithheld(w)
		return reply(w, http.StatusOK, d.Counted(n))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem(http.StatusGatewayTimeout, "timeout", "no inference server has counted the tokens of the prompt within %s", countTime)
	case errors.Is(err, inference.ErrUncounted):
		return problem(http.StatusNotFound, "not_supported", "%v", err)
	}
	return failed(ctx, err)
}

// busy refuses a prompt for which there was no place within countTime.
func busy() error {
	return later(time.Second, "overloaded", "others wait for their tokens to be counted, one of each rollout and %d of all at once: try again", mostCounts)
}

// countMessages answers Anthropic's count_tokens.
func (g *Gateway) countMessages(w *stream, r *http.Request, t *tenant) error {
	return g.count(w, r, t, dialects.MessagesCount{})
}
