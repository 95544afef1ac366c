package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/retry"
)

// whole is an answer of one turn with version 3 of the weights.
const whole = `{"weight_version":3,"choices":[{"finish_reason":"stop","message":{"content":"a"}}],"usage":{"prompt_tokens":90,"completion_tokens":10}}`

// reply is what a server says; status 0 is an answer of 200.
type reply struct {
	status int
	after  string // Retry-After
	body   string
	err    error
	takes  time.Duration
	drips  time.Duration // between two bytes of the body; 0: it comes at once
}

// drip is a body that comes byte after byte.
type drip struct {
	io.Reader
	ctx  context.Context
	each time.Duration
}

func (d drip) Read(p []byte) (int, error) {
	if !retry.Sleep(d.ctx, d.each) {
		return 0, d.ctx.Err()
	}
	return d.Reader.Read(p[:1])
}

func (d drip) Close() error { return nil }

// farm is the servers of a test, by host, in place of the network: virtual time does not
// pass while a socket waits.
type farm struct {
	mu    sync.Mutex
	serve map[string]func(n int, at time.Duration) reply
	asked map[string][]time.Duration
	began time.Time
	// What servers say of themselves, by path; 404 for others.
	pages map[string]string
	// On every request and every end of one, with the requests under way.
	watch func(host string, inFlight int, ended *reply)
	now   map[string]int
}

func (f *farm) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Host
	if r.Method == http.MethodGet && r.URL.Path != "/v1/models" {
		page, status := f.pages[r.URL.Path], http.StatusOK
		if page == "" {
			status = http.StatusNotFound
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(page)), Request: r}, nil
	}
	f.mu.Lock()
	at := time.Since(f.began)
	n := len(f.asked[host])
	f.asked[host] = append(f.asked[host], at)
	f.now[host]++
	if f.watch != nil {
		f.watch(host, f.now[host], nil)
	}
	say := f.serve[host]
	f.mu.Unlock()
	answer := say(n, at)
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.WroteRequest != nil &&
		!errors.Is(answer.err, syscall.ECONNREFUSED) {
		trace.WroteRequest(httptrace.WroteRequestInfo{})
	}
	timer := time.NewTimer(answer.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		answer.err = r.Context().Err()
	}
	f.mu.Lock()
	f.now[host]--
	if f.watch != nil {
		f.watch(host, f.now[host], &answer)
	}
	f.mu.Unlock()
	if answer.err != nil {
		return nil, answer.err
	}
	status, body, header := answer.status, answer.body, http.Header{}
	if status == 0 {
		status = http.StatusOK
	}
	if status == http.StatusOK && body == "" {
		body = whole
	}
	if answer.after != "" {
		header.Set("Retry-After", answer.after)
	}
	content := io.NopCloser(strings.NewReader(body))
	if answer.drips > 0 {
		content = drip{strings.NewReader(body), r.Context(), answer.drips}
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header,
		Body: content, Request: r}, nil
}

// errRefused is the error of a connection that nobody takes.
var errRefused = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

func (f *farm) times(host string) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked[host])
}

// always says the same.
func always(r reply) func(int, time.Duration) reply {
	return func(int, time.Duration) reply { return r }
}

func newFarm(t *testing.T, servers map[string]func(int, time.Duration) reply, change func(*Options)) (*Fleet, *farm) {
	t.Helper()
	opts := DefaultOptions()
	if change != nil {
		change(&opts)
	}
	f, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	farm := &farm{serve: servers, asked: map[string][]time.Duration{}, now: map[string]int{}, began: time.Now()}
	f.http.Transport = farm
	return f, farm
}

// call is one of a run at servers "a", "b" …, each with slots.
func call(rollout string, slots int, hosts ...string) Call {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Limits.TurnTimeout.Whole = "p", runfile.Duration(time.Minute)
	for _, h := range hosts {
		cfg.Endpoints = append(cfg.Endpoints, runfile.Endpoint{URL: "http://" + h + "/v1", Slots: slots})
	}
	return Call{
		Run: "r", Config: &cfg, Sampling: cfg.Sampling, Affinity: rollout, Until: time.Now().Add(10 * time.Second),
		Request: func(model string, _ int) any { return map[string]string{"model": model} },
	}
}

// home is a rollout whose first server is the named one.
func home(t *testing.T, f *Fleet, host string, hosts ...string) string {
	t.Helper()
	for i := range 1000 {
		c := call(fmt.Sprint("rollout", i), 4, hosts...)
		if targets, err := f.targets(c); err == nil && strings.Contains(targets[0].url, "//"+host+"/") {
			return c.Affinity
		}
	}
	t.Fatal("no rollout has that home")
	return ""
}

// TestRamp: a server that comes back cold gets one request, more with each answer, and twice as
// many with each step, however many wait.
func TestRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, calls = 16, 400
		var answers, steps int
		since := time.Duration(-1) // of the first request after the outage
		var f *farm
		serve := func(n int, at time.Duration) reply {
			if at > 10*time.Second && at < 14*time.Second {
				return reply{status: http.StatusServiceUnavailable}
			}
			return reply{takes: time.Second}
		}
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": serve}, nil)
		most := 0
		f.watch = func(_ string, inFlight int, ended *reply) {
			at := time.Since(f.began)
			switch {
			case ended != nil && ended.status != 0:
				answers, since = 0, -1
			case ended != nil:
				answers++
			default:
				if since < 0 {
					since = at
				}
				steps = int((at - since) / rampStep)
				// What was under way when the outage began comes to its end at 11 s.
				if allowed := min(slots, (1+answers)<<steps); inFlight > allowed &&
					(at < 10*time.Second || at > 11*time.Second) {
					t.Errorf("%d requests at %s, %d answers after the outage", inFlight, at, answers)
				}
				most = max(most, inFlight)
			}
		}
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				c := call(fmt.Sprint(i), slots, "a")
				c.Patient, c.Until, c.Answered = true, time.Now().Add(time.Hour),
					func(context.Context) bool { return true }
				if _, err := servers.Complete(t.Context(), c); err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if most != slots {
			t.Errorf("at most %d requests were under way, of %d", most, slots)
		}
		if took := time.Since(f.began); took > calls/slots*time.Second+20*time.Second {
			t.Errorf("%d calls took %s", calls, took)
		}
	})
}

// TestRampOfLongTurns: no answer of turns that take minutes is waited for, once the
// server has taken a request.
func TestRampOfLongTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{takes: 2 * time.Minute})},
			nil)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				c := call(fmt.Sprint(i), 32, "a")
				c.Config.Limits.TurnTimeout.Whole = runfile.Duration(5 * time.Minute)
				if _, err := servers.Complete(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		at := f.times("a")
		if at[1] < rampStep || at[31] > 6*rampStep {
			t.Errorf("the 2nd request came at %s, the 32nd at %s", at[1], at[31])
		}
	})
}

// TestRetryAfter: a server that asks to be left alone is, in both forms of the header,
// while another one goes on.
func TestRetryAfter(t *testing.T) {
	for name, header := range map[string]func() string{
		"seconds": func() string { return "30" },
		"date":    func() string { return time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limited := func(n int, _ time.Duration) reply {
					if n == 0 {
						return reply{status: http.StatusTooManyRequests, after: header()}
					}
					return reply{}
				}
				servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": limited, "b": always(reply{})},
					nil)
				rollout := home(t, servers, "a", "a", "b")
				for range 40 {
					if _, err := servers.Complete(t.Context(), call(rollout, 4, "a", "b")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				a := f.times("a")
				if len(a) < 5 || a[1] < 29*time.Second || a[1] > 32*time.Second {
					t.Errorf("asked at %s", a)
				}
				if n := len(f.times("b")); n < 29 || n > 32 {
					t.Errorf("the other one was asked %d times", n)
				}
				if _, err := servers.Complete(t.Context(), call(rollout, 4, "a")); err != nil {
					t.Errorf("when its time is over: %v", err)
				}
			})
		})
	}
}

// TestFailOver: another server answers, whatever the first one does; a request that is
// wrong is wrong everywhere.
func TestFailOver(t *testing.T) {
	for name, c := range map[string]struct {
		first reply
		fails string // "" when the other one answers
	}{
		"an error":             {reply{status: 500}, ""},
		"starting":             {reply{status: 503}, ""},
		"limited":              {reply{status: 429, after: "60"}, ""},
		"limited, rudely":      {reply{status: 429}, ""},
		"a wrong key":          {reply{status: 401}, ""},
		"no such model":        {reply{status: 404}, ""},
		"sent elsewhere":       {reply{status: 307}, ""},
		"no JSON":              {reply{body: "<html>"}, ""},
		"half an answer":       {reply{body: whole[:50]}, ""},
		"no choices":           {reply{body: `{"choices":[]}`}, ""},
		"aborted":              {reply{body: `{"choices":[{"finish_reason":"abort"}]}`}, ""},
		"another version":      {reply{body: strings.Replace(whole, ":3", ":2", 1)}, ""},
		"nobody there":         {reply{err: errors.New("connection reset")}, ""},
		"no answer in time":    {reply{takes: time.Hour}, ""},
		"a request too long":   {reply{status: 400, body: "maximum context length"}, "maximum context length"},
		"a request of no form": {reply{status: 422, body: "no"}, "422"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(c.first),
					"b": always(reply{})}, nil)
				ask := call(home(t, servers, "a", "a", "b"), 4, "a", "b")
				ask.Config.PolicyVersion = new(int64(3))
				answer, err := servers.Complete(t.Context(), ask)
				if c.fails != "" {
					if err == nil || !strings.Contains(fmt.Sprint(err, statusOf(err)), c.fails) ||
						len(f.times("b")) != 0 {
						t.Errorf("failed with %v, and asked the other one %d times", err, len(f.times("b")))
					}
					return
				}
				if err != nil || answer.Endpoint != "http://b/v1" || len(f.times("a")) != 1 || len(f.times("b")) != 1 {
					t.Errorf("answered by %+v: %v", answer, err)
				}
				if servers.replicas["http://a/v1"].inFlight != 0 || servers.replicas["http://b/v1"].inFlight != 0 {
					t.Error("a place was not given back")
				}
			})
		})
	}
}

func statusOf(err error) int {
	var f *inference.Failure
	errors.As(err, &f)
	return f.Status
}

// TestCircuit: a server that fails is left alone longer and longer, then one request tries it,
// and what it says is told.
func TestCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const recovery = 10 * time.Minute
		serve := func(_ int, at time.Duration) reply {
			if at < recovery {
				return reply{status: 500, body: "CUDA error", takes: 10 * time.Millisecond}
			}
			return reply{}
		}
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": serve}, func(o *Options) {
			o.Logger, o.Metrics = slog.New(slog.NewTextHandler(&log, nil)), registry
		})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for time.Since(f.began) < recovery+time.Minute {
					_, err := servers.Complete(t.Context(), call(fmt.Sprint(i), 8, "a"))
					if err != nil && !strings.Contains(err.Error(), "CUDA error") {
						t.Errorf("failed with %v", err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := len(f.times("a")); n < 10 || n > 60 {
			t.Errorf("it was asked %d times in 5 minutes", n)
		}
		if got := gathered(t, registry, "rondo_endpoint_state"); got != 2 {
			t.Errorf("its state is %g", got)
		}
		wg.Wait()
		times := f.times("a")
		first := slices.IndexFunc(times, func(at time.Duration) bool { return at >= recovery })
		if first < 0 || times[first] > recovery+tryAgain.Most {
			t.Fatalf("it was looked for again at %v", times[max(0, first):])
		}
		for i := 10; i <= first; i++ {
			if gap := times[i] - times[i-1]; gap < tryAgain.Most/4 && i > tripAfter+6 {
				t.Errorf("request %d came %s after the last one", i, gap)
			}
		}
		if got := gathered(t, registry, "rondo_endpoint_state"); got != 0 {
			t.Errorf("its state is %g", got)
		}
		for _, line := range []string{"inference server unavailable", "inference server still unavailable",
			"inference server recovered", "endpoint=http://a/v1"} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log does not say %q", line)
			}
		}
		if n := strings.Count(log.String(), "\n"); n > 20 {
			t.Errorf("the log has %d lines", n)
		}
	})
}

func gathered(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// TestExhaustedMachine: requests that fail by this machine, which has no descriptors or ports left,
// say nothing of their servers: no circuit opens, no ramp goes down, and no other server is tried.
func TestExhaustedMachine(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"descriptors": syscall.EMFILE, "ports": syscall.EADDRNOTAVAIL} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spent := &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, Err: errno}
				var exhausted atomic.Bool
				serve := func(int, time.Duration) reply {
					if exhausted.Load() {
						return reply{err: spent}
					}
					return reply{takes: time.Second}
				}
				f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": serve, "b": serve}, nil)
				const slots, calls = 8, 64
				all := func(check func(error)) {
					var asking sync.WaitGroup
					for i := range calls {
						asking.Go(func() {
							c := call(fmt.Sprint("rollout", i), slots, "a", "b")
							c.Patient, c.Until, c.Answered = true, time.Now().Add(time.Minute),
								func(context.Context) bool { return true }
							_, err := f.Complete(t.Context(), c)
							check(err)
						})
					}
					asking.Wait()
				}
				all(func(err error) {
					if err != nil {
						t.Error(err)
					}
				})
				asked := len(farm.times("a")) + len(farm.times("b"))
				exhausted.Store(true)
				began := time.Now()
				all(func(err error) {
					var failure *inference.Failure
					if !errors.As(err, &failure) || !failure.Exhausted() || failure.Away {
						t.Errorf("%v", err)
					}
				})
				if n := len(farm.times("a")) + len(farm.times("b")) - asked; n != calls ||
					time.Since(began) > time.Second {
					t.Errorf("%d calls made %d requests, and took %s", calls, n, time.Since(began))
				}
				for url, r := range f.replicas {
					if r.open || r.opened > 0 || r.setbacks > 0 || r.allowed < slots || r.failures > 0 {
						t.Errorf("%s: %+v", url, r)
					}
				}
			})
		})
	}
}
