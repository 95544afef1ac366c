package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

func testMetrics(t *testing.T) *metrics {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// waiting wants n in the queue when every goroutine of the bubble waits for something.
func waiting(t *testing.T, g *gate, n int) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) != n {
		t.Errorf("%d wait, want %d", len(g.waiting), n)
	}
}

// TestGate: who has priority comes first, then who came first; who leaves the
// queue takes no slot with him.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 4, testMetrics(t))
		if err := g.enter(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		leaving, leave := context.WithCancel(t.Context())
		for i, w := range []struct {
			name     string
			priority int
			ctx      context.Context
		}{{"low", 0, t.Context()}, {"gone", 9, leaving}, {"high", 5, t.Context()}, {"low too", 0, t.Context()}} {
			wg.Go(func() {
				err := g.enter(w.ctx, w.priority)
				if err != nil {
					if w.name != "gone" || !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", w.name, err)
					}
					return
				}
				mu.Lock()
				order = append(order, w.name)
				mu.Unlock()
				g.leave()
			})
			waiting(t, g, i+1)
		}
		var full *refusal
		if err := g.enter(t.Context(), 0); !errors.As(err, &full) ||
			full.status != http.StatusTooManyRequests || full.after == 0 {
			t.Errorf("a full queue: %v", err)
		}
		leave()
		waiting(t, g, 3)
		g.leave()
		wg.Wait()
		if !slices.Equal(order, []string{"high", "low", "low too"}) {
			t.Errorf("they came in as %q", order)
		}
		if g.free != 1 {
			t.Errorf("%d slots are free", g.free)
		}
	})
}

// TestGateUnderRaces: however they come and go, no more are within than may
// be, and no slot is lost.
func TestGateUnderRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(3, 1000, testMetrics(t))
		var mu sync.Mutex
		var wg sync.WaitGroup
		within := 0
		for i := range 300 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
				defer cancel()
				if g.enter(ctx, i%3) != nil {
					return
				}
				mu.Lock()
				within++
				if within > 3 {
					t.Errorf("%d are within", within)
				}
				mu.Unlock()
				time.Sleep(100 * time.Microsecond)
				mu.Lock()
				within--
				mu.Unlock()
				g.leave()
			})
		}
		wg.Wait()
		if g.free != 3 || len(g.waiting) != 0 {
			t.Errorf("%d slots are free, %d wait", g.free, len(g.waiting))
		}
	})
}

// TestGateShedsTheLowest: where too many wait, who comes with a higher priority takes the place
// of the last of the lowest.
func TestGateShedsTheLowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2, testMetrics(t))
		if err := g.enter(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		came := map[string]chan error{}
		wait := func(name string, priority, there int) {
			came[name] = make(chan error, 1)
			go func() { came[name] <- g.enter(t.Context(), priority) }()
			waiting(t, g, there)
		}
		wait("low", 1, 1)
		wait("low too", 1, 2)
		var full *refusal
		if err := g.enter(t.Context(), 1); !errors.As(err, &full) || full.after == 0 {
			t.Errorf("one of the same priority: %v", err)
		}
		go func() { g.enter(t.Context(), 2) }()
		if err := <-came["low too"]; !errors.As(err, &full) || full.status != http.StatusTooManyRequests {
			t.Errorf("the last of the lowest: %v", err)
		}
		waiting(t, g, 2)
		g.leave() // to the higher one
		waiting(t, g, 1)
		g.leave()
		if err := <-came["low"]; err != nil {
			t.Errorf("the first of the lowest: %v", err)
		}
	})
}

// TestSeeds: calls at once sample something else each, and a call that is repeated the same again.
func TestSeeds(t *testing.T) {
	g := &Gateway{}
	ro := &rollout{Rollout: events.Rollout{Run: "r", ID: "x1-0", Started: events.RolloutStarted{Seed: 7}}}
	says := func(text string) *ask {
		return &ask{Request: &dialects.Request{Conversation: []events.PromptMessage{{Role: "user", Content: text}}}}
	}
	seeds := map[int64]string{}
	var leave []func()
	for _, text := range []string{"a", "b", "a", "a"} {
		seed, done, err := g.seed(ro, says(text))
		if err != nil || seed < 0 || seeds[seed] != "" {
			t.Errorf("%q has seed %d, as %q: %v", text, seed, seeds[seed], err)
		}
		seeds[seed] = text
		leave = append(leave, done)
	}
	leave[2]() // the second of three that are the same
	if seed, done, _ := g.seed(ro, says("a")); seeds[seed] != "a" {
		t.Errorf("repeated, it has another seed")
	} else {
		done()
	}
	for _, i := range []int{0, 1, 3} {
		leave[i]()
	}
	if len(g.twins.are) != 0 {
		t.Errorf("%d calls are still under way", len(g.twins.are))
	}
	first, _, _ := g.seed(ro, says("a"))
	ro.Turns = append(ro.Turns, events.TurnSampled{})
	if second, _, _ := g.seed(ro, says("a")); seeds[first] != "a" || second == first {
		t.Errorf("seeds %d and, a turn later, %d", first, second)
	}
	ro.Turns, ro.Started.Seed = nil, 8
	if other, _, _ := g.seed(ro, says("a")); other == first {
		t.Error("two members have one seed")
	}
}

func TestReadTenants(t *testing.T) {
	key := digest("secret")
	other := digest("other")
	good := "tenants:\n- name: a\n  key_sha256: " + strings.ToUpper(key) +
		"\n  runs: [\"team-*\"]\n  requests_per_minute: 60\n  priority: 3\n- name: b\n  key_sha256: " + other + "\n"
	list, err := ReadTenants([]byte(good))
	if err != nil || len(list) != 2 || list[0].Priority != 3 || list[0].RequestsPerMinute != 60 {
		t.Fatalf("%+v: %v", list, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"", "tenants"},
		"unknown field": {strings.Replace(good, "priority", "prio", 1), "prio"},
		"no key":        {"tenants:\n- name: a\n", "key_sha256"},
		"a plain key":   {"tenants:\n- name: a\n  key_sha256: secret\n", "sha256sum"},
		"a short key":   {"tenants:\n- name: a\n  key_sha256: " + key[:32] + "\n", "sha256sum"},
		"names twice":   {strings.Replace(good, "name: b", "name: a", 1), "twice"},
		"keys twice":    {strings.Replace(good, other, key, 1), "key of another"},
		"bad name":      {strings.Replace(good, "name: b", "name: b c", 1), "b c"},
		"bad pattern":   {strings.Replace(good, "team-*", "team-[", 1), "team-["},
		"negative":      {strings.Replace(good, ": 60", ": -60", 1), "negative"},
		"NaN":           {strings.Replace(good, ": 60", ": .nan", 1), "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadTenants([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			} else if strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "secret\n") {
				t.Errorf("%s: the error tells a key: %v", name, err)
			}
		})
	}
}
