package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/services/gateway"
)

// streams takes the time until the first words of harnesses' streams: at full pace, then at half of
// it beside a bare proxy. The stream of a run's own agent begins when the whole answer is there.
func streams(ctx context.Context, l layer, begin beginning, r *Result, now func(string)) error {
	return withPlane(ctx, r.Options, l, func(b *bench) error {
		base, run, stop, err := b.harnesses(ctx)
		if err != nil {
			return err
		}
		defer stop()
		hold := func(what string) (conversations [][]took, perSecond float64, err error) {
			began := time.Now()
			conversations, err = b.hold(ctx, base, run, begin,
				func(n int) { now(fmt.Sprintf("%s: %d of %d conversations", what, n, r.Rollouts)) })
			return conversations, float64(r.Rollouts*r.Turns) / time.Since(began).Seconds(), err
		}
		_, full, err := hold("streams at full pace")
		if err != nil {
			return err
		}
		each := b.pause(full / 2)
		first := func(t took) time.Duration { return t.first }
		proxied, err := b.bare(ctx, true, begin, func() error {
			conversations, perSecond, err := hold("streams at half of that")
			// the words begin in the middle of the model's time
			r.First.Gateway, r.First.PerSecond = latency(conversations, each/2, first), perSecond
			return err
		})
		r.First.Proxy = latency(proxied, each/2, first)
		return err
	})
}

// harnesses opens a run for them, and a gateway until stop is called.
func (b *bench) harnesses(ctx context.Context) (base, run string, stop func(), err error) {
	cfg, err := b.config(ctx, groupSize)
	if err != nil {
		return "", "", nil, err
	}
	cfg.External, cfg.InFlight, cfg.Steps = true, 0, 0
	if run, err = b.Open(ctx, cfg); err != nil {
		return "", "", nil, err
	}
	servers, err := plane.Servers(b.Env())
	if err != nil {
		return "", "", nil, err
	}
	g, err := gateway.New(b.Env(), servers, gateway.DefaultOptions())
	if err != nil {
		return "", "", nil, err
	}
	server := httptest.NewServer(g)
	return server.URL, run, server.Close, nil
}

// hold holds as many conversations by streams as there are rollouts.
func (b *bench) hold(ctx context.Context, base, run string, begin beginning,
	progress func(n int)) (conversations [][]took, err error) {
	c, closeIdle := client(b.o.AtOnce)
	defer closeIdle()
	var mu sync.Mutex
	var next, ended atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range b.o.AtOnce {
		g.Go(func() error {
			for next.Add(1) <= int64(b.o.Rollouts) {
				turns, err := b.harness(ctx, c, base, run, begin)
				if err != nil {
					return err
				}
				mu.Lock()
				conversations = append(conversations, turns)
				mu.Unlock()
				progress(int(ended.Add(1)))
			}
			return nil
		})
	}
	return conversations, g.Wait()
}

// harness makes a rollout of its own.
func (b *bench) harness(ctx context.Context, c *http.Client, base, run string, begin beginning) ([]took, error) {
	var started struct {
		ID      string `json:"id"`
		BaseURL string `json:"base_url"`
	}
	if err := post(ctx, c, base+"/rollouts", map[string]any{"run": run, "task": plane.Task}, &started); err != nil {
		return nil, err
	}
	turns, err := converse(ctx, c, started.BaseURL, begin, true, b.files.readLines)
	if err != nil {
		return nil, err
	}
	var ended struct {
		Turns    int  `json:"turns"`
		Samples  int  `json:"samples"`
		TextOnly bool `json:"text_only"`
	}
	if err := post(ctx, c, base+"/rollouts/"+started.ID+"/finish", struct{}{}, &ended); err != nil {
		return nil, err
	}
	if ended.Turns != b.o.Turns || ended.Samples != 1 || ended.TextOnly {
		return nil, fmt.Errorf("rollout %s: %+v", started.ID, ended)
	}
	return turns, nil
}

func post(ctx context.Context, c *http.Client, url string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, said)
	}
	if err != nil {
		return fmt.Errorf("POST %s: %w", url, err)
	}
	return json.Unmarshal(said, into)
}
