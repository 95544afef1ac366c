package generator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestCapacityIsStatedOnce: of several generators one looks at the servers' metrics, and the run
// has one fact of what they can do. A run that does not ask for it has none.
func TestCapacityIsStatedOnce(t *testing.T) {
	log := natstest.Log(t)
	var looked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/metrics":
			looked.Add(1)
			fmt.Fprint(w, "vllm:num_requests_running 5\nvllm:num_requests_waiting 7\nvllm:kv_cache_usage_perc 0.5\n")
		case r.Method == http.MethodGet:
			http.NotFound(w, r)
		default:
			fmt.Fprint(w, final)
		}
	}))
	t.Cleanup(server.Close)
	for _, run := range []string{"follows", "fixed"} {
		cfg := servicetest.Config("a")
		cfg.Endpoint = server.URL + "/v1"
		if run == "follows" {
			cfg.InFlight = runfile.AutoInFlight
		}
		servicetest.OpenRun(t, log, run, cfg)
		for g := range int64(6) {
			servicetest.StartRollout(t, log, run, events.RolloutID(events.GroupID(g+1), 0), "a")
		}
	}
	for n := range 3 {
		env := servicetest.Env(t, log)
		env.Instance = fmt.Sprint("generator-", n)
		opts, servers := DefaultOptions(), servicetest.Fleet(t, env, nil)
		opts.Slots = 2
		servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, servers, opts) })
	}
	facts := servicetest.Wait(t, log, "follows", events.CapacityMeasuredType, "small", 1)
	m := servicetest.Data[events.CapacityMeasured](t, facts[0])
	if len(m.Servers) != 1 || m.Servers[0].URL != server.URL+"/v1" || !m.Servers[0].Measured ||
		m.Servers[0].Running != 5 || m.Servers[0].Waiting != 7 || m.Servers[0].KVUsage != 0.5 ||
		m.Turns < 5 || m.Turns != m.Servers[0].Turns {
		t.Errorf("stated: %+v", m)
	}
	for g := range int64(6) {
		for _, run := range []string{"follows", "fixed"} {
			servicetest.Wait(t, log, run, events.RolloutFinishedType, events.RolloutID(events.GroupID(g+1), 0), 1)
		}
	}
	before := looked.Load()
	natstest.Eventually(t, "somebody looks again", func() bool { return looked.Load() > before+1 })
	if facts := servicetest.All(t, log, "follows", events.CapacityMeasuredType); len(facts) > 1 &&
		facts[1].Time.Sub(facts[0].Time) < sayEvery {
		t.Errorf("%d facts within %s", len(facts), facts[1].Time.Sub(facts[0].Time))
	}
	if facts := servicetest.All(t, log, "fixed", events.CapacityMeasuredType); len(facts) > 0 {
		t.Errorf("a run that does not follow the capacity has %v", servicetest.IDs(facts))
	}
}

// TestNoticeableCapacities: the first is stated, and then one that differs by a tenth and two, ten
// seconds later at the earliest.
func TestNoticeableCapacities(t *testing.T) {
	last := &events.CapacityMeasured{Turns: 100}
	for _, c := range []struct {
		last  *events.CapacityMeasured
		since time.Duration
		turns int
		want  bool
	}{
		{nil, 0, 1, true}, {last, time.Hour, 109, false}, {last, time.Hour, 110, true}, {last, time.Hour, 90, true},
		{last, 9 * time.Second, 1, false},
		{&events.CapacityMeasured{Turns: 4}, time.Hour, 5, false},
		{&events.CapacityMeasured{Turns: 4}, time.Hour, 2, true},
	} {
		if got := Noticeable(c.last, c.since, events.CapacityMeasured{Turns: c.turns}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	mute := events.CapacityMeasured{Turns: 100, Servers: []events.ServerCapacity{{URL: "http://mute/v1", Turns: 100}}}
	if !Noticeable(last, time.Hour, mute) || !Noticeable(&mute, time.Hour, *last) ||
		Noticeable(&mute, time.Hour, mute) {
		t.Error("that a server says nothing of its load any more, or says it again, is not stated once")
	}
}

// TestUnknownLoadIsSaid: the log names servers that say nothing of their load, once, and the
// built-in policy's endpoint never.
func TestUnknownLoadIsSaid(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	var text strings.Builder
	s := &Service{store: log.Store(), logger: slog.New(slog.NewTextHandler(&text, nil))}
	state := func(url string, turns, want int) {
		t.Helper()
		m := events.CapacityMeasured{Turns: turns, Servers: []events.ServerCapacity{{URL: url, Turns: turns}}}
		facts, err := s.measured(t.Context(), log.Reader, &capacity{}, "r", url[:4], m)
		if err != nil || len(facts) != 1 {
			t.Fatalf("%v, %v", facts, err)
		}
		if n := strings.Count(text.String(),
			`msg="server load unknown" run=r servers=[http://mute/v1] turns=64 do="see that it is up`); n != want {
			t.Errorf("it is said %d times, want %d:\n%s", n, want, &text)
		}
	}
	state(runfile.BuiltinEndpoint, 64, 0)
	state("http://mute/v1", 64, 1)
}
