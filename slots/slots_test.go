package slots

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// given is the lease that must be there by now.
func given(t *testing.T, r *Request) *Lease {
	t.Helper()
	select {
	case l := <-r.Lease():
		return l
	default:
		t.Fatal("no slots were given")
		return nil
	}
}

func waits(t *testing.T, r *Request) {
	t.Helper()
	select {
	case l := <-r.Lease():
		t.Fatalf("%d slots were given", l.N)
	default:
	}
}

// take asks for slots, has a message come into each, and says how many that were.
func take(t Tenant, want int) int {
	r := t.Ask(want)
	select {
	case l := <-r.Lease():
		t.End(l, 0)
		return l.N
	default:
		t.Forget(r)
		return 0
	}
}

// TestTheOnlyOneThatWaitsTakesWhatIsFree: at once, whoever else is known.
func TestTheOnlyOneThatWaitsTakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8)
		a, other := s.Tenant("a"), s.Tenant("other")
		if n := take(other, 1); n != 1 {
			t.Fatalf("%d slots for the first message", n)
		}
		other.Settled(true)
		if n := take(a, 100); n != 8 {
			t.Errorf("got %d slots, want all 8", n)
		}
		next := a.Ask(100)
		waits(t, next)
		a.Settled(true)
		if l := given(t, next); l.N != 1 {
			t.Errorf("got %d slots, want the one that is free again", l.N)
		}
	})
}

// TestSharesOfThoseThatWait: tenants share what becomes free, and the
// subscriptions of one share its part.
func TestSharesOfThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(9)
		a, b := s.Tenant("a"), s.Tenant("b")
		all := given(t, a.Ask(9))
		a1, a2, b1 := a.Ask(100), a.Ask(100), b.Ask(100)
		time.Sleep(time.Second)
		a.End(all, 9)
		l1, l2, l3 := given(t, a1), given(t, a2), given(t, b1)
		if l1.N != 2 || l2.N != 2 || l3.N != 5 {
			t.Errorf("the two subscriptions of one tenant have %d and %d slots, the other tenant %d", l1.N, l2.N, l3.N)
		}
		a.End(l1, l1.N)
		a.End(l2, l2.N)
		b.End(l3, l3.N)
		if s.free != 9 || len(s.waiting)+len(s.pulling) != 0 {
			t.Errorf("%d slots are free at the end, %d requests wait, %d pull", s.free, len(s.waiting), len(s.pulling))
		}
	})
}

// TestWhoHasFewestComesFirst: what a tenant has in work counts, not how often it asks.
func TestWhoHasFewestComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4)
		a, b := s.Tenant("a"), s.Tenant("b")
		take(a, 4)
		a1, a2, b1 := a.Ask(1), a.Ask(1), b.Ask(1)
		a.Settled(true)
		waits(t, a1)
		b.End(given(t, b1), 0)
		for range 3 { // short work of b keeps its slot
			b1 = b.Ask(1)
			b.Settled(true)
			b.End(given(t, b1), 0)
		}
		b1 = b.Ask(1)
		a.Settled(true)
		b.End(given(t, b1), 0)
		b1 = b.Ask(1)
		a.Settled(true) // one against two
		a.End(given(t, a1), 0)
		waits(t, a2)
		waits(t, b1)
	})
}

// TestSlotWaitsForThePullOfWhoHasFewer: a tenant with few slots asks for more when its pull has
// ended; what becomes free meanwhile is its own.
func TestSlotWaitsForThePullOfWhoHasFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4)
		a, b := s.Tenant("a"), s.Tenant("b")
		take(a, 4)
		pull := b.Ask(9)
		a.Settled(true)
		lease := given(t, pull)
		a1 := a.Ask(9)
		a.Settled(true)
		waits(t, a1)
		more := b.Ask(8)
		b.End(lease, 0)
		waits(t, a1)
		b.End(given(t, more), 0)
		more = b.Ask(9)
		b.Settled(true)
		lease = given(t, more)
		waits(t, a1)
		b.End(lease, 1) // nothing was left
		if l := given(t, a1); l.N != 1 {
			t.Errorf("got %d slots", l.N)
		}
	})
}

// TestRequestTakenBackLeavesNothing, before its lease and after.
func TestRequestTakenBackLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a := s.Tenant("a")
		r := a.Ask(1)
		late := a.Ask(1)
		a.Forget(late)
		a.Forget(r)
		if s.free != 1 || len(s.waiting)+len(s.pulling) != 0 {
			t.Errorf("%d free, %d waiting, %d pulling; want 1, 0, 0", s.free, len(s.waiting), len(s.pulling))
		}
	})
}

// TestFailuresLeaveAnEighth: a tenant whose last message failed leaves slots to others until one
// succeeds, but gets on with any number of them.
func TestFailuresLeaveAnEighth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for total, most := range map[int]int{1: 1, 2: 1, 4: 3, 8: 7, 64: 56} {
			s := New(total)
			a, b := s.Tenant("a"), s.Tenant("b")
			if n := take(a, total); n != total {
				t.Errorf("a new tenant gets %d of %d slots", n, total)
			}
			time.Sleep(time.Second)
			for range total {
				a.Settled(false)
			}
			if n := take(a, total); n != most {
				t.Errorf("a tenant that fails gets %d of %d slots, want %d", n, total, most)
			}
			if n := take(b, total); n != total-most {
				t.Errorf("another finds %d of %d slots, want %d", n, total, total-most)
			}
			for range total - most {
				b.Settled(true)
			}
			more := a.Ask(total)
			a.Settled(true)
			if l := given(t, more); l.N != total-most+1 {
				t.Errorf("after a success it gets %d more of %d slots, want %d", l.N, total, total-most+1)
			}
		}
	})
}

// TestCancelledWorkSaysNothing: who stops waiting for an answer neither fences
// the tenant nor ends that.
func TestCancelledWorkSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for fails, most := range map[bool]int{false: 8, true: 7} {
			s := New(8)
			a := s.Tenant("a")
			ctx, cancel := context.WithCancel(t.Context())
			work := func(do func() bool) {
				if err := a.Do(ctx, func() bool { time.Sleep(time.Second); return do() }); err != nil {
					t.Fatal(err)
				}
			}
			work(func() bool { return !fails })
			work(func() bool { cancel(); return false })
			if n := take(a, 8); n != most {
				t.Errorf("a tenant whose last answer was a failure (%t) gets %d of 8 slots, want %d", fails, n, most)
			}
		}
	})
}

// TestFailedTenantTriesAgain: a tenant whose last message failed gets a slot while another
// uses all of them, one at a time, and its part when it has succeeded. Those that fail
// never have the kept slots.
func TestFailedTenantTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8)
		a, b := s.Tenant("a"), s.Tenant("b")
		fail := func(tenant Tenant) {
			take(tenant, 1)
			time.Sleep(time.Second)
			tenant.Settled(false)
		}
		fail(a)
		if n := take(b, 8); n != 8 {
			t.Fatalf("the other has %d slots", n)
		}
		try, second := a.Ask(1), a.Ask(1)
		b.Settled(true)
		a.End(given(t, try), 0)
		b.Settled(true)
		waits(t, second)
		b.Settled(true) // two are free, which is more than the kept one
		a.End(given(t, second), 0)
		s = New(8)
		for _, name := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
			fail(s.Tenant(name))
		}
		inWork := 0
		for _, name := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
			inWork += take(s.Tenant(name), 1)
		}
		if well := take(s.Tenant("well"), 1); inWork != 7 || well != 1 {
			t.Errorf("those that fail have %d slots, and one that does not finds %d", inWork, well)
		}
	})
}
