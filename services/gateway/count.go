package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// Bounds of counting: how many prompts are counted at once, of all runs and of one, and how long
// that may take, as may the wait for a place.
const (
	mostCounts = 16
	runCounts  = mostCounts / 4
	countTime  = 30 * time.Second
)

// ownCounts is the code of a refusal because of the rollout's own other counts.
const ownCounts = "too_many_counts"

// count answers how many tokens the prompt of a request has. The prompt is made as for a turn, but
// nothing is sampled: it takes no slot, no turn is bound, and nothing is put on the log. Where no
// server counts, the request is refused, and nothing is guessed. An agent is not judged by it.
func (g *Gateway) count(w *stream, r *http.Request, t *tenant, d dialects.Counting) (err error) {
	defer func() { t.agent.heardCount(r.Context(), err) }()
	share, body, end, err := g.receive(w, r, t, true)
	if err != nil {
		return err
	}
	defer end()
	n, err := g.tokensOf(w, r, t, share, d, body)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, d.Counted(n))
}

// tokensOf is how many tokens the prompt of a request has. It is read in its place to count: while
// it waits it is as large as its text.
func (g *Gateway) tokensOf(w *stream, r *http.Request, t *tenant, share *memory.Share, d dialects.Dialect,
	body []byte) (int, error) {
	defer t.agent.counts()()
	leave, err := g.mayCount(r.Context(), t.Name, r.PathValue("id"))
	if err != nil {
		return 0, err
	}
	defer leave()
	a, err := decode(r.Context(), share, d, body)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), countTime)
	defer cancel()
	ro, err := g.find(r.WithContext(ctx), t)
	if err != nil {
		return 0, err
	}
	if err := ro.open(); err != nil {
		return 0, err
	}
	if err := ro.maySee(a); err != nil {
		return 0, err
	}
	if a.shows() { // servers count the images of a prompt otherwise than they sample behind them
		return 0, problem(http.StatusNotFound, "not_supported", "the tokens of a prompt with images are not counted")
	}
	if err := a.chooseSampling(ro.cfg.Sampling); err != nil {
		return 0, err
	}
	if err := a.bind(ro.Turns); err != nil {
		return 0, err
	}
	if err := a.choose(ro, t.agent.behind()); err != nil {
		return 0, err
	}
	conv, err := a.byTokens(ro, 0)
	if err != nil {
		return 0, problem(http.StatusBadRequest, "invalid_request_error", "%v", err)
	}
	n, err := g.servers.Count(ctx, fleet.Call{Run: ro.Run, Config: a.cfg, Affinity: ro.ID,
		Sampling: a.sampling, Tokens: conv})
	switch {
	case err == nil:
		a.tellWithheld(w)
		return n, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, problem(http.StatusGatewayTimeout, "timeout",
			"no inference server has counted the tokens of the prompt within %s", countTime)
	case errors.Is(err, inference.ErrUncounted):
		return 0, problem(http.StatusNotFound, "not_supported", "%v", err)
	}
	return 0, failed(ctx, err)
}

// mayCount waits for a place to count a prompt of a tenant's rollout, which leave
// gives back. A rollout has one at most, so that none has all of its run's, and no
// stranger has that of another's.
func (g *Gateway) mayCount(ctx context.Context, tenant, rollout string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	own, err := g.locks.wait(ctx, "counts of "+tenant+", rollout "+rollout, 1)
	if err != nil {
		return nil, later(time.Second, ownCounts,
			"rollout %s has counted other prompts for %s, one after the other: try again", rollout, countTime)
	}
	run, _, _ := strings.Cut(rollout, ".")
	release, err := g.locks.wait(ctx, "counts of run "+run, runCounts)
	if err == nil {
		select {
		case g.counts <- struct{}{}:
			return func() {
				<-g.counts
				release()
				own()
			}, nil
		case <-ctx.Done():
			release()
		}
	}
	own()
	return nil, later(time.Second, "overloaded",
		"no place to count tokens within %s: a run has %d, and all together have %d; try again",
		countTime, runCounts, mostCounts)
}

// countMessages answers Anthropic's count_tokens.
func (g *Gateway) countMessages(w *stream, r *http.Request, t *tenant) error {
	return g.count(w, r, t, dialects.MessagesCount{})
}
