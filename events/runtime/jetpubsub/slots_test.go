package jetpubsub

import (
	"testing"
	"testing/synctest"
)

// asked asks for slots and returns where the loan will come.
func asked(s *Slots, want int, hot bool) <-chan *loan { return s.ask(want, hot).loan() }

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
		s := NewSlots(8)
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
		s := NewSlots(8)
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
		s := NewSlots(2)
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
		s := NewSlots(1)
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
		s := NewSlots(1)
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
		s := NewSlots(1)
		l := given(t, asked(s, 1, true))
		r := s.ask(1, true)
		s.forget(r)
		s.end(l, 1)
		if s.free != 1 || len(s.waiting) != 0 || len(s.resting) != 0 {
			t.Errorf("%d free, %d waiting, %d resting; want 1, 0, 0", s.free, len(s.waiting), len(s.resting))
		}
	})
}
