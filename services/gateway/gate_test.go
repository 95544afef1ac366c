package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func testMetrics(t *testing.T) *metrics {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// waiting waits until n stand before the gate.
func waiting(g *gate, n int) {
	for {
		g.mu.Lock()
		there := len(g.waiting)
		g.mu.Unlock()
		if there == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestGate: who has priority comes first, then who came first; who leaves the queue takes no slot with him.
func TestGate(t *testing.T) {
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
		waiting(g, i+1)
	}
	var full *refusal
	if err := g.enter(t.Context(), 99); !errors.As(err, &full) || full.status != http.StatusTooManyRequests || full.after == 0 {
		t.Errorf("a full queue: %v", err)
	}
	leave()
	waiting(g, 3)
	g.leave()
	wg.Wait()
	if !slices.Equal(order, []string{"high", "low", "low too"}) {
		t.Errorf("they came in as %q", order)
	}
	if g.free != 1 {
		t.Errorf("%d slots are free", g.free)
	}
}

// TestGateUnderRaces: however they come and go, no more are within than may be, and no slot is lost.
func TestGateUnderRaces(t *testing.T) {
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
}

// TestBucket: a minute's worth at once, then as it fills; what went beyond is waited for.
func TestBucket(t *testing.T) {
	at := time.Unix(1000, 0)
	b := bucket{perMinute: 60}
	for i := range 60 {
		if w := b.wait(at, 1); w != 0 {
			t.Fatalf("the %d-th waits %s", i, w)
		}
		b.take(1)
	}
	if w := b.wait(at, 1); w != time.Second {
		t.Errorf("the next one waits %s", w)
	}
	if w := b.wait(at.Add(time.Second), 1); w != 0 {
		t.Errorf("a second later it waits %s", w)
	}
	debt := bucket{perMinute: 60, at: at}
	debt.take(180)
	if w := debt.wait(at, 0); w != 2*time.Minute {
		t.Errorf("twice the bucket in debt waits %s", w)
	}
	if w := debt.wait(at.Add(-time.Hour), 0); w != 2*time.Minute {
		t.Errorf("a clock that goes back gives %s", w)
	}
	if w := debt.wait(at.Add(2*time.Minute), 0); w != 0 {
		t.Errorf("two minutes later it waits %s", w)
	}
	none := bucket{}
	none.take(1e9)
	if w := none.wait(at, 1); w != 0 {
		t.Errorf("without a limit it waits %s", w)
	}
}

func TestReadTenants(t *testing.T) {
	key := digest("secret")
	other := digest("other")
	good := "tenants:\n- name: a\n  key_sha256: " + strings.ToUpper(key) + "\n  runs: [\"team-*\"]\n  requests_per_minute: 60\n  priority: 3\n- name: b\n  key_sha256: " + other + "\n"
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
		if _, err := ReadTenants([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "secret\n") {
			t.Errorf("%s: the error tells a key: %v", name, err)
		}
	}
}
