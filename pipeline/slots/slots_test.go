package slots

import (
	"testing"
	"testing/synctest"
)

// asked asks for slots and returns where the lease will come.
func asked(s Tenant, want int, hot bool) <-chan *Lease { return s.Ask(want, hot).Lease() }

// given is the lease that must be there by now.
func given(t *testing.T, got <-chan *Lease) *Lease {
	t.Helper()
	select {
	case l := <-got:
		return l
	default:
		t.Fatal("no slots were given")
		return nil
	}
}

func waits(t *testing.T, got <-chan *Lease) {
	t.Helper()
	select {
	case l := <-got:
		t.Fatalf("%d slots were given where none are free", l.N)
	default:
	}
}

func TestBacklogTakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8).Tenant("a")
		if l := given(t, asked(s, 100, true)); l.N != 8 || l.Patience != 0 {
			t.Errorf("got %d slots with patience %s, want all 8 at once", l.N, l.Patience)
		}
		next := asked(s, 100, true)
		waits(t, next)
		s.Release()
		synctest.Wait()
		if l := given(t, next); l.N != 1 {
			t.Errorf("got %d slots, want the one that was released", l.N)
		}
	})
}

func TestBacklogsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8).Tenant("a")
		all := given(t, asked(s, 8, true))
		a, b := asked(s, 100, true), asked(s, 100, true)
		s.End(all, 8)
		synctest.Wait()
		if la, lb := given(t, a), given(t, b); la.N != 4 || lb.N != 4 {
			t.Errorf("got %d and %d slots, want 4 each", la.N, lb.N)
		}
	})
}

func TestQuietPullIsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2).Tenant("a")
		quiet := given(t, asked(s, 1, false))
		if quiet.N != 1 || quiet.Patience != Unhurried {
			t.Errorf("a quiet subscription alone got %d slots with patience %s", quiet.N, quiet.Patience)
		}
		given(t, asked(s, 5, true)) // takes the other slot
		if quiet.WasRecalled() {
			t.Error("recalled although nobody waits")
		}
		busy := asked(s, 5, true)
		if !quiet.WasRecalled() {
			t.Fatal("a backlog waits, and the slot that a quiet pull rests on is not recalled")
		}
		s.End(quiet, 1)
		synctest.Wait()
		given(t, busy)
	})
}

func TestQuietOneLooksOnlyWhileBacklogsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1).Tenant("a")
		first := given(t, asked(s, 1, true))
		quiet, busy := asked(s, 1, false), asked(s, 9, true)
		s.End(first, 1)
		synctest.Wait()
		l := given(t, quiet) // it came first
		if l.Patience != 0 {
			t.Errorf("patience is %s, want none", l.Patience)
		}
		waits(t, busy)
		s.End(l, 1)
		synctest.Wait()
		given(t, busy)
	})
}

func TestMoreQuietOnesThanSlotsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1).Tenant("a")
		a := given(t, asked(s, 1, false))
		b, c := asked(s, 1, false), asked(s, 1, false)
		if !a.WasRecalled() {
			t.Fatal("the first one rests on the only slot")
		}
		s.End(a, 1)
		synctest.Wait()
		if l := given(t, b); l.Patience != turn {
			t.Errorf("patience is %s, want %s", l.Patience, turn)
		}
		waits(t, c)
	})
}

func TestGivenUpRequestLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1).Tenant("a")
		l := given(t, asked(s, 1, true))
		r := s.Ask(1, true)
		s.Forget(r)
		s.End(l, 1)
		if s.free != 1 || len(s.waiting) != 0 || len(s.resting) != 0 {
			t.Errorf("%d free, %d waiting, %d resting; want 1, 0, 0", s.free, len(s.waiting), len(s.resting))
		}
	})
}

// What a tenant has in work counts, not how often it asks or how many subscriptions it has.
func TestTheFewestSlotsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4)
		a, b := s.Tenant("a"), s.Tenant("b")
		given(t, asked(a, 4, true)) // long work
		a1, a2 := asked(a, 9, true), asked(a, 9, true)
		b1 := asked(b, 9, true)
		a.Release()
		synctest.Wait()
		given(t, b1)
		for range 3 { // short work of b keeps the slot while a has more
			b1 = asked(b, 9, true)
			waits(t, b1)
			b.Release()
			synctest.Wait()
			given(t, b1)
		}
		b2 := asked(b, 9, true)
		a.Release()
		synctest.Wait()
		given(t, b2) // 2 each
		b3 := asked(b, 9, true)
		a.Release()
		synctest.Wait()
		given(t, a1) // a has fewer, and came first
		waits(t, a2)
		waits(t, b3)
		if s.inUse["a"] != 2 || s.inUse["b"] != 2 {
			t.Errorf("slots in use: %v", s.inUse)
		}
	})
}

// Two subscriptions of one tenant share what that tenant gets.
func TestPartiesShareFreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8)
		a, b := s.Tenant("a"), s.Tenant("b")
		all := given(t, asked(a, 8, true))
		a1, a2, b1 := asked(a, 100, true), asked(a, 100, true), asked(b, 100, true)
		a.End(all, 8)
		synctest.Wait()
		l1, l2, l3 := given(t, a1), given(t, a2), given(t, b1)
		if l1.N != 2 || l3.N < 3 || l1.N+l2.N+l3.N > 8 {
			t.Errorf("the two of one tenant got %d and %d slots, the other %d", l1.N, l2.N, l3.N)
		}
		a.End(l1, l1.N)
		a.End(l2, l2.N)
		b.End(l3, l3.N)
		if s.free != 8 || len(s.inUse) != 0 {
			t.Errorf("%d slots are free at the end, in use %v", s.free, s.inUse)
		}
	})
}

// A quiet subscription gets its look while a tenant with few slots keeps asking for more.
func TestQuietOnesAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		busy, quiet := s.Tenant("busy"), s.Tenant("quiet")
		given(t, asked(busy, 1, true))
		hot, look := asked(busy, 1, true), asked(quiet, 1, false)
		busy.Release()
		synctest.Wait()
		given(t, hot)
		hot = asked(busy, 1, true)
		busy.Release()
		synctest.Wait()
		quiet.End(given(t, look), 1)
		synctest.Wait()
		given(t, hot)
	})
}
