package jetpubsub

import (
	"testing"
	"testing/synctest"
)

// asked asks for slots and returns where the loan will come.
func asked(s party, want int, hot bool) <-chan *loan { return s.ask(want, hot).loan() }

// given is the loan that must be there by now.
func given(t *testing.T, got <-chan *loan) *loan {
	t.Helper()
	select {
	case l := <-got:
		return l
	default:
		t.Fatal("no slots were given")
		return nil
	}
}

func waits(t *testing.T, got <-chan *loan) {
	t.Helper()
	select {
	case l := <-got:
		t.Fatalf("%d slots were given where none are free", l.n)
	default:
	}
}

func TestBacklogTakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(8).party("a")
		if l := given(t, asked(s, 100, true)); l.n != 8 || l.patience != 0 {
			t.Errorf("got %d slots with patience %s, want all 8 at once", l.n, l.patience)
		}
		next := asked(s, 100, true)
		waits(t, next)
		s.release()
		synctest.Wait()
		if l := given(t, next); l.n != 1 {
			t.Errorf("got %d slots, want the one that was released", l.n)
		}
	})
}

func TestBacklogsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(8).party("a")
		all := given(t, asked(s, 8, true))
		a, b := asked(s, 100, true), asked(s, 100, true)
		s.end(all, 8)
		synctest.Wait()
		if la, lb := given(t, a), given(t, b); la.n != 4 || lb.n != 4 {
			t.Errorf("got %d and %d slots, want 4 each", la.n, lb.n)
		}
	})
}

func TestQuietPullIsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(2).party("a")
		quiet := given(t, asked(s, 1, false))
		if quiet.n != 1 || quiet.patience != patience {
			t.Errorf("a quiet subscription alone got %d slots with patience %s", quiet.n, quiet.patience)
		}
		given(t, asked(s, 5, true)) // takes the other slot
		if quiet.wasRecalled() {
			t.Error("recalled although nobody waits")
		}
		busy := asked(s, 5, true)
		if !quiet.wasRecalled() {
			t.Fatal("a backlog waits, and the slot that a quiet pull rests on is not recalled")
		}
		s.end(quiet, 1)
		synctest.Wait()
		given(t, busy)
	})
}

func TestQuietOneLooksOnlyWhileBacklogsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1).party("a")
		first := given(t, asked(s, 1, true))
		quiet, busy := asked(s, 1, false), asked(s, 9, true)
		s.end(first, 1)
		synctest.Wait()
		l := given(t, quiet) // it came first
		if l.patience != 0 {
			t.Errorf("patience is %s, want none", l.patience)
		}
		waits(t, busy)
		s.end(l, 1)
		synctest.Wait()
		given(t, busy)
	})
}

func TestMoreQuietOnesThanSlotsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1).party("a")
		a := given(t, asked(s, 1, false))
		b, c := asked(s, 1, false), asked(s, 1, false)
		if !a.wasRecalled() {
			t.Fatal("the first one rests on the only slot")
		}
		s.end(a, 1)
		synctest.Wait()
		if l := given(t, b); l.patience != turn {
			t.Errorf("patience is %s, want %s", l.patience, turn)
		}
		waits(t, c)
	})
}

func TestGivenUpRequestLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1).party("a")
		l := given(t, asked(s, 1, true))
		r := s.ask(1, true)
		s.forget(r)
		s.end(l, 1)
		if s.free != 1 || len(s.waiting) != 0 || len(s.resting) != 0 {
			t.Errorf("%d free, %d waiting, %d resting; want 1, 0, 0", s.free, len(s.waiting), len(s.resting))
		}
	})
}

// What a party has in work counts, not how often it asks or how many subscriptions it has.
func TestTheFewestSlotsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(4)
		a, b := s.party("a"), s.party("b")
		given(t, asked(a, 4, true)) // long work
		a1, a2 := asked(a, 9, true), asked(a, 9, true)
		b1 := asked(b, 9, true)
		a.release()
		synctest.Wait()
		given(t, b1)
		for range 3 { // short work of b keeps the slot while a has more
			b1 = asked(b, 9, true)
			waits(t, b1)
			b.release()
			synctest.Wait()
			given(t, b1)
		}
		b2 := asked(b, 9, true)
		a.release()
		synctest.Wait()
		given(t, b2) // 2 each
		b3 := asked(b, 9, true)
		a.release()
		synctest.Wait()
		given(t, a1) // a has fewer, and came first
		waits(t, a2)
		waits(t, b3)
		if s.inUse["a"] != 2 || s.inUse["b"] != 2 {
			t.Errorf("slots in use: %v", s.inUse)
		}
	})
}

// Two subscriptions of one party share what that party gets.
func TestPartiesShareFreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(8)
		a, b := s.party("a"), s.party("b")
		all := given(t, asked(a, 8, true))
		a1, a2, b1 := asked(a, 100, true), asked(a, 100, true), asked(b, 100, true)
		a.end(all, 8)
		synctest.Wait()
		l1, l2, l3 := given(t, a1), given(t, a2), given(t, b1)
		if l1.n != 2 || l3.n < 3 || l1.n+l2.n+l3.n > 8 {
			t.Errorf("the two of one party got %d and %d slots, the other %d", l1.n, l2.n, l3.n)
		}
		a.end(l1, l1.n)
		a.end(l2, l2.n)
		b.end(l3, l3.n)
		if s.free != 8 || len(s.inUse) != 0 {
			t.Errorf("%d slots are free at the end, in use %v", s.free, s.inUse)
		}
	})
}

// A quiet subscription gets its look while a party with few slots keeps asking for more.
func TestQuietOnesAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1)
		busy, quiet := s.party("busy"), s.party("quiet")
		given(t, asked(busy, 1, true))
		hot, look := asked(busy, 1, true), asked(quiet, 1, false)
		busy.release()
		synctest.Wait()
		given(t, hot)
		hot = asked(busy, 1, true)
		busy.release()
		synctest.Wait()
		quiet.end(given(t, look), 1)
		synctest.Wait()
		given(t, hot)
	})
}
