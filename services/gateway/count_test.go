package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// TestPlacesToCount: a rollout counts one prompt after the other, a run some and all together so
// many at once. A request that finds no place in time is refused, and takes none. Other tenants
// take no place of a rollout.
func TestPlacesToCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{counts: make(chan struct{}, mostCounts)}
		enter := func(tenant string, run, rollout int) (func(), error) {
			return g.mayCount(t.Context(), tenant, fmt.Sprintf("run%d.%d", run, rollout))
		}
		refused := func(code string, run, rollout int) {
			t.Helper()
			began := time.Now()
			var p *refusal
			if _, err := enter("a", run, rollout); !errors.As(err, &p) || p.status != http.StatusTooManyRequests ||
				p.code != code || p.after == 0 || time.Since(began) != countTime {
				t.Errorf("rollout %d of run %d: %v after %s", rollout, run, err, time.Since(began))
			}
		}
		var leave [mostCounts]func()
		for i := range leave {
			var err error
			if leave[i], err = enter("a", i/runCounts, i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				refused(ownCounts, 0, 0)
				stranger, err := enter("b", 0, 0)
				if err != nil {
					t.Fatal("a stranger waits for the rollout's place", err)
				}
				stranger()
			}
			if i == runCounts-1 {
				refused("overloaded", 0, i+1)
			}
		}
		refused("overloaded", mostCounts, 0)
		time.AfterFunc(time.Second, leave[0])
		began := time.Now()
		again, err := enter("a", mostCounts, 0)
		if err != nil || time.Since(began) != time.Second {
			t.Fatalf("a place that was given back: %v after %s", err, time.Since(began))
		}
		again()
		for _, leave := range leave[1:] {
			leave()
		}
		if len(g.counts) != 0 || len(g.locks.held) != 0 {
			t.Errorf("%d places and %v stay taken", len(g.counts), g.locks.held)
		}
	})
}

// TestCountsStopNoClock: an agent that counts for ever uses up its time, and one that counts now
// and then waits for its counts at no cost.
func TestCountsStopNoClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, began := &Agent{}, time.Now()
		for range 10 {
			a.recorded(events.TurnSampled{})
			for range 3 {
				done := a.counts()
				time.Sleep(5 * time.Second)
				done()
			}
		}
		if used := a.Used(began); used != 0 {
			t.Errorf("counts of %s cost the agent %s", time.Since(began), used)
		}
		a, began = &Agent{}, time.Now()
		a.recorded(events.TurnSampled{})
		var loops sync.WaitGroup
		for range 2 {
			loops.Go(func() {
				for range 100 {
					done := a.counts()
					time.Sleep(7 * time.Second)
					done()
				}
			})
			time.Sleep(3 * time.Second)
		}
		loops.Wait()
		if used, most := a.Used(began), 2*countTime; time.Since(began)-used > most || a.counted > most {
			t.Errorf("of %s in which the agent did nothing but count it used %s; counts may stop its clock for %s",
				time.Since(began), used, most)
		}
	})
}

// TestMiscounts: what the machine fails at a count is the machine's where the agent has ended badly
// by it, or had no turn, and nothing came since that says more.
func TestMiscounts(t *testing.T) {
	failed := later(time.Second, "overloaded", "no place")
	wrong := problem(http.StatusBadRequest, "invalid_request_error", "odd")
	own := later(time.Second, ownCounts, "its own")
	for name, c := range map[string]struct {
		happens  func(a *Agent)
		code     int
		machines bool
	}{
		"no turn, well": {func(a *Agent) { a.heardCount(t.Context(), failed) }, 0, true},
		"no turn, badly": {func(a *Agent) { a.heardCount(t.Context(), errors.New("the log is away")) }, 1,
			true},
		"behind a turn, well": {func(a *Agent) {
			a.recorded(events.TurnSampled{})
			a.heardCount(t.Context(),
				failed)
		}, 0, false},
		"behind a turn, badly": {func(a *Agent) {
			a.recorded(events.TurnSampled{})
			a.heardCount(t.Context(),
				failed)
		}, 1, true},
		"before a turn": {func(a *Agent) {
			a.heardCount(t.Context(),
				failed)
			a.recorded(events.TurnSampled{})
		}, 1, false},
		"before a refused turn": {func(a *Agent) { a.heardCount(t.Context(), failed); a.heard(t.Context(), wrong) },
			1, false},
		"before a good count": {func(a *Agent) {
			a.heardCount(t.Context(),
				failed)
			a.heardCount(t.Context(), nil)
		}, 1, false},
		"before a wrong count": {func(a *Agent) {
			a.heardCount(t.Context(),
				failed)
			a.heardCount(t.Context(), wrong)
		}, 1, true},
		"a wrong count":       {func(a *Agent) { a.heardCount(t.Context(), wrong) }, 1, false},
		"too many of its own": {func(a *Agent) { a.heardCount(t.Context(), own) }, 1, false},
		"another model fails": {func(a *Agent) {
			a.recorded(events.TurnSampled{})
			a.heard(t.Context(),
				otherFailed{failed})
		}, 0, false},
		"and the agent with it": {func(a *Agent) {
			a.recorded(events.TurnSampled{})
			a.heard(t.Context(),
				otherFailed{wrong})
		}, 1, true},
		"the turn fails, as well": {func(a *Agent) { a.heard(t.Context(), failed); a.heardCount(t.Context(), nil) }, 0,
			true},
	} {
		a := &Agent{}
		c.happens(a)
		if _, err := a.Ended(c.code); (err != nil) != c.machines {
			t.Errorf("%s: the machine failed %v", name, err)
		}
	}
}

// TestCountsOfATenant: a count is one of the requests of a tenant, and none
// of his concurrent calls.
func TestCountsOfATenant(t *testing.T) {
	limited, now := newTenant(Tenant{Name: "a", Concurrent: 1, RequestsPerMinute: 2}), time.Now()
	if err := limited.begin(now, true); err != nil {
		t.Fatal(err)
	}
	if err := limited.begin(now, false); err != nil {
		t.Errorf("a turn beside a count: %v", err)
	}
	if err := limited.may(now, true); err == nil || !strings.Contains(err.Error(), "requests a minute") {
		t.Errorf("a third request: %v", err)
	}
}

// TestCountDecodesInItsPlace: what waits for a place to count holds its text in memory,
// and not what becomes of it.
func TestCountDecodesInItsPlace(t *testing.T) {
	g := &Gateway{memory: newMemory(), counts: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	read := false
	r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)
	r.SetPathValue("id", "r.x-0")
	share := g.memory.Share("a")
	defer share.End()
	if _, err := g.tokensOf(nil, r, newTenant(Tenant{Name: "a"}), share, reads{told: func() { read = true }},
		[]byte(`{}`)); err == nil || read {
		t.Errorf("without a place: %v, and the request was read: %t", err, read)
	}
}

// reads is a dialect that tells when it reads.
type reads struct {
	dialects.Chat
	told func()
}

func (d reads) Read([]byte) (*dialects.Request, error) {
	d.told()
	return nil, errors.New("read")
}

// TestChatsAreCountedAsWritten: the messages of a chat are counted as its turn is asked with, also
// what only a template may know.
func TestChatsAreCountedAsWritten(t *testing.T) {
	a := askOf(t, dialects.Chat{}, map[string]any{"messages": []any{map[string]any{"role": "user",
		"content": "Mend it.", "odd": 1}}})
	want := string(a.Forward["messages"])
	a.cfg = &runfile.RunConfig{}
	conv, err := a.byTokens(&rollout{cfg: runfile.RunConfig{}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if written := conv("m").Request.Written; written.Messages != 1 || "["+string(written.JSON)+"]" != want ||
		!strings.Contains(want, "odd") {
		t.Errorf("%s is counted as %+v", want, written)
	}
}
