package slots

import (
	"testing"
	"testing/synctest"
)

// take asks for slots with a backlog until no more are given, and says how many that were.
func take(s Tenant) (n int) {
	for {
		r := s.Ask(100, true)
		synctest.Wait()
		select {
		case l := <-r.Lease():
			n += l.N
			s.End(l, 0)
		default:
			s.Forget(r)
			return n
		}
	}
}

func joined(s *Slots, names ...string) (tenants []Tenant) {
	for _, name := range names {
		p := s.Tenant(name)
		p.Join()
		tenants = append(tenants, p)
	}
	return tenants
}

// TestShares: what hangs holds a quarter, what works nearly all, and who comes late still finds a slot.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(16)
		p := joined(s, "alone")
		if n := take(p[0]); n != 16 {
			t.Errorf("a tenant alone gets %d of 16 slots", n)
		}

		s = New(16)
		p = joined(s, "poison", "works", "poison too", "poison three", "late")
		if n := take(p[0]); n != 4 {
			t.Errorf("of a tenant whose work never ends %d of 16 slots are in work, want 4", n)
		}
		if n := take(p[1]); n != 4 {
			t.Errorf("a tenant that is new gets %d slots, want 4", n)
		}
		p[1].Settled(true)
		if n := take(p[1]); n != 9 {
			t.Errorf("trusted it gets %d more, want 9: 12 in all, as 4 are in work elsewhere", n)
		}
		for range 6 {
			p[1].Settled(true)
		}
		if n := take(p[2]); n != 4 {
			t.Errorf("a second one that hangs gets %d, want 4", n)
		}
		if n := take(p[3]); n != 1 {
			t.Errorf("a third one gets %d, want 1: together they may have half, and each may try", n)
		}
		if n := take(p[4]); n != 1 {
			t.Errorf("who comes last gets %d, want 1", n)
		}
	})
}

// TestTrustIsLost when work fails, and comes back.
func TestTrustIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(16)
		p := joined(s, "a", "b")[0]
		work := func(well bool) int {
			given(t, asked(p, 1, true))
			p.Settled(well)
			n := take(p)
			for range n {
				p.Release()
			}
			return n
		}
		for i, well := range []bool{true, false, false, true} {
			if n, want := work(well), map[bool]int{true: 14, false: 4}[well]; n != want {
				t.Errorf("after work %d, which went well: %t, it gets %d slots, want %d", i, well, n, want)
			}
		}
	})
}

// TestBoundsEnd when the others leave, also for who waits.
func TestBoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8)
		p := joined(s, "a", "b", "b")
		if n := take(p[0]); n != 2 {
			t.Errorf("beside another it gets %d of 8 slots, want 2", n)
		}
		more := asked(p[0], 9, true)
		waits(t, more)
		p[1].Leave()
		waits(t, more)
		p[2].Leave()
		if l := given(t, more); l.N != 6 {
			t.Errorf("alone it gets %d more, want 6", l.N)
		}
	})
}

// TestFewSlots: also with one or two of them everybody gets on.
func TestFewSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for total := 1; total <= 9; total++ {
			s := New(total)
			for i, p := range joined(s, "a", "b") {
				n := take(p)
				if n < 1 && total > i || n > max(1, total/4) {
					t.Errorf("tenant %d gets %d of %d slots", i, n, total)
				}
				for range n {
					p.Settled(true)
				}
				if n = take(p); n != max(1, total-max(1, total/8)) {
					t.Errorf("trusted, tenant %d gets %d of %d slots", i, n, total)
				}
				for range n {
					p.Release()
				}
			}
		}
	})
}

// TestQuietPullsKeepTheirRest: slots that pulls rest on count for nobody, and are not called back for who may not have more.
func TestQuietPullsKeepTheirRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8)
		p := joined(s, "a", "b")
		quiet := given(t, asked(p[1], 1, false))
		also := given(t, asked(p[0], 1, false))
		if n := take(p[0]); n != 2 {
			t.Errorf("beside its own resting pull it gets %d slots, want 2", n)
		}
		waits(t, asked(p[0], 5, true))
		if quiet.WasRecalled() || also.WasRecalled() {
			t.Error("a slot is called back for a tenant that may not have more")
		}
	})
}
