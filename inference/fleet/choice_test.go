package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// TestAffinity: a rollout stays with its server, whatever process asks, and each
// server has its share of them.
func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := []string{"a", "b", "c", "d"}
		all := map[string]func(int, time.Duration) reply{}
		for _, h := range hosts {
			all[h] = always(reply{})
		}
		one, f := newFarm(t, all, nil)
		other, g := newFarm(t, all, nil)
		for i := range 1000 {
			for range 2 {
				for _, servers := range []*Fleet{one, other} {
					if _, err := servers.Complete(t.Context(), call(fmt.Sprint(i), 8, hosts...)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, h := range hosts {
			if n, m := len(f.times(h)), len(g.times(h)); n != m || n < 400 || n > 600 {
				t.Errorf("%s was asked %d and %d times", h, n, m)
			}
		}
		moved := 0
		for i := range 1000 {
			with, _ := one.targets(call(fmt.Sprint(i), 8, hosts...))
			less, _ := one.targets(call(fmt.Sprint(i), 8, hosts[:3]...))
			if with[0].url != less[0].url {
				moved++
				if with[0].url != "http://d/v1" {
					t.Fatalf("rollout %d left %s", i, with[0].url)
				}
			}
		}
		if moved == 0 {
			t.Error("a server that is gone keeps its rollouts")
		}
		weighed := call("x", 0, "a", "b")
		weighed.Config.Endpoints[0].Slots, weighed.Config.Endpoints[1].Slots = 30, 10
		first := 0
		for i := range 4000 {
			weighed.Affinity = fmt.Sprint(i)
			if targets, _ := one.targets(weighed); targets[0].slots == 30 {
				first++
			}
		}
		if math.Abs(float64(first)-3000) > 150 {
			t.Errorf("three quarters of the slots are the first choice of %d of 4000", first)
		}
	})
}

// TestPriority: those who wait come in by priority, and where too many wait, the lowest is
// told when to come again.
func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{takes: time.Second})},
			func(o *Options) { o.Waiting = 3 })
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		shed := map[string]*inference.Failure{}
		for _, who := range []struct {
			name     string
			priority int
		}{{"first", 0}, {"low", 1}, {"lowest", 0}, {"high", 9}, {"late", 0}, {"higher", 10}} {
			wg.Go(func() {
				c := call(who.name, 1, "a")
				c.Priority = who.priority
				_, err := servers.Complete(t.Context(), c)
				mu.Lock()
				defer mu.Unlock()
				var f *inference.Failure
				if errors.As(err, &f) {
					shed[who.name] = f
					return
				}
				order = append(order, who.name)
			})
			synctest.Wait()
		}
		gone, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		c := call("gone", 1, "a")
		c.Priority = 11
		if _, err := servers.Complete(gone, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who leaves is told %v", err)
		}
		wg.Wait()
		if !slices.Equal(order, []string{"first", "higher", "high"}) &&
			!slices.Equal(order, []string{"first", "higher", "high", "low"}) {
			t.Errorf("they came in as %q", order)
		}
		for name, f := range shed {
			if !f.Throttled || f.After <= 0 || name == "high" || name == "higher" {
				t.Errorf("%s is shed with %+v", name, f)
			}
		}
		if len(shed)+len(order) != 6 || len(shed) < 2 {
			t.Errorf("shed are %v", shed)
		}
		if r := servers.replicas["http://a/v1"]; r.inFlight != 0 || len(servers.waiting) != 0 {
			t.Errorf("%d are under way, %d wait", r.inFlight, len(servers.waiting))
		}
	})
}

// TestTokensPerMinute of a run: it goes on as its minute fills, and other runs go on meanwhile.
func TestTokensPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{})}, nil)
		c := call("x", 8, "a")
		c.Config.Limits.TokensPerMinute = 1000 // ten turns
		for range 30 {
			c.Until = time.Now().Add(time.Minute)
			if _, err := servers.Complete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(f.began); took < 110*time.Second || took > 120*time.Second {
			t.Errorf("3000 tokens took %s", took)
		}
		c.Until = time.Now()
		var failure *inference.Failure
		if _, err := servers.Complete(t.Context(), c); !errors.As(err, &failure) ||
			!failure.Throttled || failure.After <= 0 {
			t.Errorf("without patience: %v", failure)
		}
		free := call("x", 8, "a")
		free.Run = "other"
		if _, err := servers.Complete(t.Context(), free); err != nil {
			t.Errorf("another run: %v", err)
		}
	})
}

// TestPinnedVersionIsFound: a server that is known to serve another version is asked last.
func TestPinnedVersionIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := always(reply{body: strings.Replace(whole, ":3", ":2", 1)})
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": old, "b": always(reply{})}, nil)
		c := call(home(t, servers, "a", "a", "b"), 4, "a", "b")
		c.Config.PolicyVersion = new(int64(3))
		for range 10 {
			if a, err := servers.Complete(t.Context(), c); err != nil || a.Turn.PolicyVersion != 3 {
				t.Fatalf("%+v: %v", a, err)
			}
		}
		if n := len(f.times("a")); n != 1 {
			t.Errorf("the other version was asked %d times", n)
		}
	})
}

// TestReplicasAreForgotten: runs that name new servers all the time take no memory without end.
func TestReplicasAreForgotten(t *testing.T) {
	servers, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxReplicas {
		if _, err := servers.targets(call("x", 1, fmt.Sprint("host", i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(servers.replicas); n > maxReplicas {
		t.Errorf("%d servers are remembered", n)
	}
}
