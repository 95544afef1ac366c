package retry_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

func TestDelay(t *testing.T) {
	p := retry.Policy{First: time.Second, Most: 30 * time.Second}
	for failed, most := range map[int]time.Duration{
		-1: 0, 0: 0, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 64: 30 * time.Second,
		math.MaxInt: 30 * time.Second,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := p.Delay(failed)
			if d < most/2 || d > most {
				t.Fatalf("after %d failures: %s, want %s to %s", failed, d, most/2, most)
			}
			seen[d] = true
		}
		if most > 0 && len(seen) < 2 {
			t.Errorf("after %d failures all callers wait %s", failed, p.Delay(failed))
		}
	}
	if d := (retry.Policy{}).Delay(3); d != 0 {
		t.Errorf("a policy without waits waits %s", d)
	}
	if d := (retry.Policy{First: time.Minute, Most: time.Second}).Delay(1); d > time.Second {
		t.Errorf("waits %s, and at most a second was wanted", d)
	}
	if d := (retry.Policy{First: 1, Most: math.MaxInt64}).Delay(math.MaxInt); d < math.MaxInt64/4 {
		t.Errorf("a long wait became %s", d)
	}
}

func TestSpent(t *testing.T) {
	if (retry.Policy{}).GivesUp(1000) || (retry.Policy{Tries: 3}).GivesUp(2) || !(retry.Policy{Tries: 3}).GivesUp(3) {
		t.Error("a caller gives up after as many tries as the policy has, and never where it has none")
	}
}

var errTest = errors.New("test")

func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.Policy{First: time.Second, Most: 8 * time.Second}
		calls := 0
		var waits []time.Duration
		began := time.Now()
		err := p.Keep(t.Context(), func() (bool, error) {
			if calls++; calls == 7 {
				time.Sleep(time.Minute) // this one worked for a while
			}
			if calls == 9 {
				return true, errTest
			}
			return false, errTest
		}, func(err error, wait time.Duration) {
			if !errors.Is(err, errTest) {
				t.Errorf("told of %v", err)
			}
			waits = append(waits, wait)
		})
		if !errors.Is(err, errTest) || calls != 9 {
			t.Errorf("%d calls, %v", calls, err)
		}
		total := time.Minute
		for i, seconds := range []int{1, 2, 4, 8, 8, 8, 1, 2} {
			if most := time.Duration(seconds) * time.Second; waits[i] < most/2 || waits[i] > most {
				t.Errorf("wait %d is %s, want %s to %s", i, waits[i], most/2, most)
			}
			total += waits[i]
		}
		if took := time.Since(began); took != total {
			t.Errorf("it took %s, and %s were promised", took, total)
		}
	})
}

func TestKeepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		p := retry.Policy{First: time.Hour, Most: time.Hour}
		began := time.Now()
		err := p.Keep(ctx, func() (bool, error) { return false, errTest }, func(error, time.Duration) {})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 100*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		if p.Wait(ctx, 1) {
			t.Error("a wait went on behind its context's end")
		}
	})
}
