package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events"
)

// side measures one side: agents, where there is something for them to begin with. Otherwise it is
// the loop, and begun is what that begins with.
func side(ctx context.Context, o Options, l layer, begin *beginning,
	now func(string)) (s Side, begun beginning, err error) {
	var before time.Duration
	err = withPlane(ctx, o, l, func(b *bench) error {
		// The first rollouts of a plane pay for what is made once.
		if _, err := b.rollouts(ctx, groupSize, begin, func(int) {}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if begun, err = b.begun(); err != nil {
			return err
		}
		if before, err = processorTime(); err != nil {
			return err
		}
		all, err := b.rollouts(ctx, o.Rollouts, begin, func(scored int) {
			now(fmt.Sprintf("%s: %d of %d rollouts", name(begin), scored, o.Rollouts))
		})
		if err != nil {
			return err
		}
		s.RolloutsPerSecond = float64(o.Rollouts) / all.took.Seconds()
		for _, t := range all.told {
			s.Own += t.CPU / float64(o.Rollouts)
		}
		return nil
	})
	if err != nil {
		return s, begun, err
	}
	after, err := processorTime() // with the plane's end: until then sandboxes are not counted
	s.CPU = milliseconds(after-before)/float64(o.Rollouts) - s.Own
	return s, begun, err
}

func name(begin *beginning) string {
	if begin == nil {
		return "the plane's own loop"
	}
	return "agents"
}

// begun is what the server's longest conversation begins with.
func (b *bench) begun() (begun beginning, err error) {
	var last beginning
	if err := json.Unmarshal(b.Server.Longest(), &last); err != nil {
		return begun, err
	}
	begun.Tools = last.Tools
	for _, raw := range last.Messages {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			return begun, err
		}
		if m.Role == "assistant" {
			return begun, nil
		}
		begun.Messages = append(begun.Messages, raw)
	}
	return begun, errors.New("the server was asked for no second turn")
}

// made are rollouts from the first one's start to their batch, with what agents said.
type made struct {
	took time.Duration
	told []told
}

// rollouts makes some, by agents where there is something for them to begin with.
func (b *bench) rollouts(ctx context.Context, count int, begin *beginning,
	progress func(scored int)) (m made, err error) {
	cfg, err := b.config(ctx, count)
	if err != nil {
		return m, err
	}
	if begin != nil {
		if err := b.withAgent(ctx, &cfg, *begin); err != nil {
			return m, err
		}
	}
	run, err := b.Open(ctx, cfg)
	if err != nil {
		return m, err
	}
	var began time.Time
	scored := 0
	err = b.until(ctx, run, func(e events.Event) (bool, error) {
		switch e.Type {
		case events.RolloutStartedType:
			if began.IsZero() {
				began = e.Time
			}
		case events.RolloutRetriedType:
			return false, fmt.Errorf("%s: %s", e.ID, e.Data)
		case events.RolloutFinishedType:
			finished, err := events.Data[events.RolloutFinished](e)
			if err == nil && (finished.Turns != b.o.Turns || finished.Samples != 1 || finished.TextOnly) {
				err = fmt.Errorf("%s: %d turns in %d samples, text only: %t", e.ID, finished.Turns,
					finished.Samples, finished.TextOnly)
			}
			return false, err
		case events.WorkspaceAnsweredType:
			said, err := b.tellOf(ctx, e)
			m.told = append(m.told, said)
			return false, err
		case events.RolloutScoredType:
			scored++
			progress(scored)
		case events.BatchReadyType:
			m.took = e.Time.Sub(began)
			return true, nil
		}
		return false, nil
	})
	return m, err
}

// half takes the time of agents' requests with a model that takes so long that turns come at half
// the pace, beside a bare proxy.
func half(ctx context.Context, l layer, begin beginning, r *Result, now func(string)) error {
	return withPlane(ctx, r.Options, l, func(b *bench) error {
		if _, err := b.rollouts(ctx, groupSize, &begin, func(int) {}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		each := b.pause(r.Agent.RolloutsPerSecond * float64(r.Turns) / 2)
		proxied, err := b.bare(ctx, false, begin, func() error {
			all, err := b.rollouts(ctx, r.Rollouts, &begin, func(scored int) {
				now(fmt.Sprintf("agents at half load: %d of %d rollouts", scored, r.Rollouts))
			})
			if err != nil {
				return err
			}
			var took []time.Duration
			for _, t := range all.told {
				for _, ms := range t.Turns[1:] { // the first turns wait for the spread
					took = append(took, time.Duration(ms*float64(time.Millisecond))-each)
				}
			}
			r.Whole.Gateway = figures.LatencyOf(took)
			r.Whole.PerSecond = float64(r.Rollouts*r.Turns) / all.took.Seconds()
			return nil
		})
		r.Whole.Proxy = latency(proxied, each, func(t took) time.Duration { return t.whole })
		return err
	})
}

// latency is what conversations' turns took beside the model's time.
func latency(conversations [][]took, think time.Duration, of func(took) time.Duration) figures.Latency {
	var all []time.Duration
	for _, turns := range conversations {
		for _, t := range turns[min(1, len(turns)):] { // the first turns wait for the spread
			all = append(all, of(t)-think)
		}
	}
	return figures.LatencyOf(all)
}

// pause lets the model take so long that so many turns a second come, and gives that time.
func (b *bench) pause(turnsPerSecond float64) time.Duration {
	each := time.Duration(float64(b.o.AtOnce) / turnsPerSecond * float64(time.Second))
	b.Server.Think(func(turn int) time.Duration {
		if turn == 0 { // conversations that begin together are spread over the time of a turn
			return time.Duration(rand.Float64() * float64(each))
		}
		return each
	})
	return each
}

// bare holds conversations by a bare proxy, half as many at once as there are rollouts, as
// long as f does something.
func (b *bench) bare(ctx context.Context, stream bool, begin beginning,
	f func() error) (conversations [][]took, err error) {
	target, err := url.Parse(strings.TrimSuffix(b.URL, "/v1"))
	if err != nil {
		return nil, err
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		// its clients leave
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ErrorLog: log.New(io.Discard, "", 0),
	})
	defer proxy.Close()
	at := max(1, b.o.AtOnce/2)
	c, closeIdle := client(at)
	defer closeIdle()
	working, stop := context.WithCancel(ctx)
	var mu sync.Mutex
	var g errgroup.Group
	for range at {
		g.Go(func() error {
			for working.Err() == nil {
				turns, err := converse(working, c, proxy.URL+"/v1", begin, stream, b.files.readLines)
				if err != nil && working.Err() == nil {
					return fmt.Errorf("by the bare proxy: %w", err)
				}
				mu.Lock()
				conversations = append(conversations, turns) // the last one is broken off
				mu.Unlock()
			}
			return nil
		})
	}
	err = f()
	stop()
	return conversations, errors.Join(err, g.Wait())
}
