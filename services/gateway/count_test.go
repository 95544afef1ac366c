package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlacesToCount: a rollout counts one prompt after the other, and all together so many at once. Who finds no place in his time is told to come again, and leaves none taken.
func TestPlacesToCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{counts: make(chan struct{}, mostCounts)}
		enter := func(rollout int) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), countTime)
			defer cancel()
			return g.mayCount(ctx, fmt.Sprint(rollout))
		}
		refused := func(rollout int) {
			t.Helper()
			began := time.Now()
			var p *refusal
			if _, err := enter(rollout); !errors.As(err, &p) || p.status != http.StatusTooManyRequests || p.after == 0 || time.Since(began) != countTime {
				t.Errorf("rollout %d: %v after %s", rollout, err, time.Since(began))
			}
		}
		var leave [mostCounts]func()
		for i := range leave {
			var err error
			if leave[i], err = enter(i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				refused(0)
			}
		}
		refused(mostCounts)
		time.AfterFunc(time.Second, leave[0])
		began := time.Now()
		again, err := enter(mostCounts)
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
