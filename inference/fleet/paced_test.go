package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// paced is a load of rollouts that ask a server for turn after turn, as the generator does.
type paced struct {
	*Fleet
	farm    *farm
	turns   map[string]int // that came, by their finish
	lost    int            // tries that failed
	mu      sync.Mutex
	lows    map[time.Duration]int // the fewest requests under way in each span that begins then
	spans   []time.Duration
	reach   int
	reached []time.Duration // when so many were under way again, behind fewer
	below   bool
}

const pacedSlots = 512

// newPaced makes a load on a scripted server. The fewest requests under way are noted for the
// spans, and when reach of them were under way.
func newPaced(t *testing.T, serve func(n int, at time.Duration) reply, reach int, log *bytes.Buffer,
	books *prometheus.Registry, spans ...time.Duration) *paced {
	p := &paced{turns: map[string]int{}, lows: map[time.Duration]int{}, spans: spans, reach: reach, below: true}
	p.Fleet, p.farm = newFarm(t, map[string]func(int, time.Duration) reply{"a": serve}, func(o *Options) {
		o.Slots, o.Metrics = pacedSlots, books
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	for i := 0; i < len(spans); i += 2 {
		p.lows[spans[i]] = pacedSlots
	}
	p.farm.watch = func(_ string, inFlight int, _ *reply) {
		at := time.Since(p.farm.began)
		for i := 0; i+1 < len(p.spans); i += 2 {
			if at >= p.spans[i] && at < p.spans[i+1] {
				p.lows[p.spans[i]] = min(p.lows[p.spans[i]], inFlight)
			}
		}
		if p.below && inFlight >= p.reach {
			p.reached = append(p.reached, at)
		}
		p.below = inFlight < p.reach
	}
	return p
}

// run lets rollouts ask until a time.
func (p *paced) run(t *testing.T, rollouts int, until time.Duration) {
	var asking sync.WaitGroup
	for i := range rollouts {
		asking.Go(func() {
			for time.Since(p.farm.began) < until {
				c := call(fmt.Sprint(i), pacedSlots, "a")
				c.Config.Limits.TurnTimeout = runfile.TurnTimeout{Whole: runfile.Duration(4 * time.Hour)}
				c.Patient, c.Until, c.Answered = true, time.Now().Add(10*time.Second),
					func(context.Context) bool { return true }
				answer, err := p.Complete(t.Context(), c)
				p.mu.Lock()
				if err == nil {
					finish := answer.Turn.FinishReason
					if slices.Contains(answer.Turn.Lacks, events.LackTools) {
						finish = events.StopUnread
					}
					p.turns[finish]++
				} else {
					p.lost++
				}
				p.mu.Unlock()
				answer.Done()
				var f *inference.Failure
				if errors.As(err, &f) {
					time.Sleep(max(f.After, time.Second))
				}
			}
		})
	}
	asking.Wait()
}

// finishes are what an engine says of why an answer ended, and what that is: "" for no turn.
var finishes = map[string]string{
	`"stop"`: events.FinishStop, `"EOS_TOKEN"`: events.FinishStop, `"length"`: events.FinishLength,
	`"MAX_TOKENS"`: events.FinishLength, `"tool_calls"`: events.StopUnread,
	`"repetition"`: events.FinishRepetition, `"content_filter"`: events.FinishFiltered, `null`: events.FinishUnknown,
	`"a new word"`: events.FinishUnknown,
	`"abort"`:      "", `"aborted"`: "", `"timeout"`: "", `"insufficient_system_resource"`: "",
}

// ending is an answer that ended so.
func ending(word string) string { return strings.Replace(whole, `"stop"`, word, 1) }

// TestPacedLoad: 512 slots, turns of about ten minutes, some that come after forty or a byte a
// minute, and each word for why an answer ended. Each twentieth connection is reset at once or
// within the turn, each hundredth is answered by a proxy's 502, for two minutes nothing ends, and
// the server starts again once. Single faults never empty the server, it is full again soon after
// the restart, every answer that came whole is one turn, and the books have all of them by name.
func TestPacedLoad(t *testing.T) {
	const down, up, end = 90 * time.Minute, 93 * time.Minute, 3 * time.Hour
	const pause, resume = 60 * time.Minute, 62 * time.Minute
	words := slices.Sorted(maps.Keys(finishes))
	synctest.Test(t, func(t *testing.T) {
		serve := func(n int, at time.Duration) reply {
			part := rand.New(rand.NewPCG(1, uint64(n))).Float64()
			r := reply{takes: time.Duration((5 + 10*part) * float64(time.Minute)), body: whole}
			switch {
			case n%40 == 19:
				r = reply{err: errors.New("reset"), takes: time.Millisecond}
			case n%40 == 39:
				r = reply{err: errors.New("reset"), takes: r.takes / 2}
			case n%100 == 50:
				r = reply{status: http.StatusBadGateway, takes: time.Millisecond}
			case n%100 == 51:
				r.takes = 40 * time.Minute
			case n%100 == 52:
				r.drips = time.Minute
			case n%10 == 7:
				r.body = ending(words[n/10%len(words)])
			}
			if ends := at + r.takes; ends >= pause && at < resume {
				r.takes += resume - pause
			}
			return r
		}
		var log bytes.Buffer
		books := prometheus.NewRegistry()
		const bound, full = 9 * pacedSlots / 10, 95 * pacedSlots / 100
		p := newPaced(t, serve, full, &log, books, time.Minute, down, up+time.Minute, end)
		w := newWire(t, p.farm)
		p.http.Transport = w.transport
		time.AfterFunc(down, w.stop)
		time.AfterFunc(up, w.start)
		p.run(t, nightly.Count(600, 800), end)
		synctest.Wait() // the server has written its books
		t.Logf("%v turns, %d failed tries; fewest under way %v; %d under way at %v", p.turns, p.lost, p.lows, full,
			p.reached[:min(8, len(p.reached))])
		for begin, least := range p.lows {
			if least < bound {
				t.Errorf("behind %s single faults left %d requests under way, want %d or more", begin, least, bound)
			}
		}
		again := slices.IndexFunc(p.reached, func(at time.Duration) bool { return at > up })
		if again < 0 || p.reached[0] > 30*time.Second || p.reached[again] > up+time.Minute {
			t.Errorf("the server had %d requests from %v on, want from 30 s, and from a minute behind the restart",
				full, p.reached[:min(8, len(p.reached))])
		}
		came, given := map[string]int{}, 0
		for word, finish := range finishes {
			if n := w.came[ending(word)]; n == 0 {
				t.Errorf("no answer ended with %s", word)
			} else if finish == "" {
				given += n
			} else {
				came[finish] += n
			}
		}
		if !maps.Equal(p.turns, came) {
			t.Errorf("answers %v became turns %v", came, p.turns)
		}
		for finish, n := range came {
			if counted := countedAs(t, books, "rondo_endpoint_turns_total", finish); counted != n {
				t.Errorf("the metrics have %d turns that ended with %s, want %d", counted, finish, n)
			}
		}
		gaveUp := w.came[ending(`"abort"`)]
		for outcome, n := range map[outcome]int{aborted: gaveUp, broken: w.resets + given - gaveUp} {
			if counted := countedAs(t, books, "rondo_endpoint_requests_total", string(outcome)); counted != n {
				t.Errorf("the metrics have %d requests that were %s, want %d", counted, outcome, n)
			}
		}
		for _, line := range []string{`msg="inference server unavailable"`, `msg="inference server recovered"`} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log does not say %s", line)
			}
		}
		if n := strings.Count(log.String(), "\n") - strings.Count(log.String(), `msg="finish reason unknown"`); n > 10 {
			t.Errorf("the log has %d lines:\n%s", n, &log)
		}
	})
}

// TestColdNodesAfterAnOutage: two nodes of a hundred come back, and a thousand turns wait: each is
// asked as a cold one is, and not for the load of a hundred.
func TestColdNodesAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, back = 128, 3 * time.Minute
		nodes := map[string]func(int, time.Duration) reply{}
		var hosts []string
		for i := range 10 {
			host := fmt.Sprint("n", i)
			hosts = append(hosts, host)
			nodes[host] = func(_ int, at time.Duration) reply {
				if at < back || i > 1 {
					return reply{err: errRefused, takes: time.Millisecond}
				}
				return reply{takes: 10 * time.Minute}
			}
		}
		servers, farm := newFarm(t, nodes, func(o *Options) { o.Slots, o.Waiting = slots, 1024 })
		first, most := map[string]time.Duration{}, map[string]int{}
		farm.watch = func(host string, inFlight int, ended *reply) {
			at := time.Since(farm.began)
			if ended != nil || at < back {
				return
			}
			if host != "n0" && host != "n1" {
				return
			}
			if _, known := first[host]; !known {
				first[host] = at
			}
			if allowed := 1 << min(20, (at-first[host])/rampStep); inFlight > allowed {
				t.Errorf("%s behind its first request %s has %d requests, and its ramp allows %d", at-first[host],
					host, inFlight, allowed)
			}
			most[host] = max(most[host], inFlight)
		}
		var asking sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range 1000 {
			asking.Go(func() {
				for ctx.Err() == nil {
					c := call(fmt.Sprint(i), slots, hosts...)
					c.Config.Limits.TurnTimeout = runfile.TurnTimeout{}
					c.Patient, c.Until, c.Answered = true, time.Now().Add(10*time.Second),
						func(context.Context) bool { return true }
					var f *inference.Failure
					if _, err := servers.Complete(ctx, c); errors.As(err, &f) {
						time.Sleep(max(f.After, time.Second))
					}
				}
			})
		}
		time.Sleep(back + 90*time.Second)
		farm.mu.Lock()
		t.Logf("first %v, most %v", first, most)
		if most["n0"] != slots || most["n1"] != slots {
			t.Errorf("90 s after they came back they had at most %v requests", most)
		}
		farm.mu.Unlock()
		stop()
		asking.Wait()
	})
}

// TestOneFaultOfMany: 33 turns of ten minutes are under way, and one request fails, or one caller's
// again and again. The others stay, and the free places are filled.
func TestOneFaultOfMany(t *testing.T) {
	const slots, begin, end = 33, time.Minute, 9 * time.Minute
	for name, fault := range map[string]reply{
		"a reset connection":    {err: errors.New("connection reset by peer")},
		"a proxy's 502":         {status: http.StatusBadGateway},
		"a 503":                 {status: http.StatusServiceUnavailable},
		"an error":              {status: http.StatusInternalServerError},
		"nonsense":              {body: "<html>"},
		"a prompt refused":      {status: http.StatusBadRequest},
		"a refused connection":  {err: errRefused},
		"a turn that takes all": {takes: 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				fault.takes += time.Millisecond
				p := newPaced(t, func(_ int, at time.Duration) reply {
					if at >= begin && at < end {
						return fault
					}
					return reply{takes: 10 * time.Minute}
				}, slots, &log, prometheus.NewRegistry(), begin, end)
				p.lows[begin] = slots
				ctx, stop := context.WithCancel(t.Context())
				var asking sync.WaitGroup
				ask := func(rollout string) {
					c := call(rollout, slots+1, "a")
					c.Config.Limits.TurnTimeout = runfile.TurnTimeout{}
					c.Patient, c.Until, c.Answered = true, time.Now().Add(10*time.Second),
						func(context.Context) bool { return true }
					p.Complete(ctx, c)
				}
				for i := range slots {
					asking.Go(func() { ask(fmt.Sprint(i)) })
				}
				time.Sleep(begin)
				asking.Go(func() { // one prompt that the server cannot take
					for time.Since(p.farm.began) < end && ctx.Err() == nil {
						ask("wrong")
						retry.Sleep(ctx, time.Second)
					}
				})
				time.Sleep(end - begin)
				synctest.Wait()
				r := p.replicas["http://a/v1"]
				p.Fleet.mu.Lock()
				if r.open || r.opened > 0 || r.allowed < slots || p.lows[begin] < slots {
					t.Errorf("%d requests at least, of %d; open %t, allowed %.0f", p.lows[begin],
						slots, r.open, r.allowed)
				}
				p.Fleet.mu.Unlock()
				if strings.Contains(log.String(), "WARN") {
					t.Errorf("it was told as an outage:\n%s", &log)
				}
				stop()
				asking.Wait()
			})
		})
	}
}
