package slots

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// load is a tenant's work: so many at once that always have something to do, or think in between.
type load struct {
	workers     int
	call, think time.Duration
	started     time.Duration // when it comes

	calls    int
	waited   time.Duration // for slots, all calls together
	longest  time.Duration
	slotTime time.Duration // of calls, in the second half
}

// run has the loads share slots for a time.
func (s *Slots) run(total time.Duration, loads map[string]*load) {
	begun, end := time.Now(), time.Now().Add(total)
	done := make(chan struct{})
	workers := 0
	for name := range loads {
		s.Tenant(name).Join() // all of them, before one takes a slot: who comes later is a test of its own
	}
	for name, l := range loads {
		p := s.Tenant(name)
		for range l.workers {
			workers++
			go func() {
				defer func() { done <- struct{}{} }()
				time.Sleep(l.started)
				for time.Now().Before(end) {
					asked := time.Now()
					r := p.Ask(1, true)
					select {
					case got := <-r.Lease():
						s.End(got, 0)
					case <-time.After(time.Until(end)):
						s.Forget(r)
						return
					}
					waited := time.Since(asked)
					from := time.Now()
					time.Sleep(l.call)
					p.Settled(true)
					s.mu.Lock()
					l.calls, l.waited, l.longest = l.calls+1, l.waited+waited, max(l.longest, waited)
					if half := begun.Add(total / 2); time.Now().After(half) {
						l.slotTime += time.Since(later(from, half))
					}
					s.mu.Unlock()
					time.Sleep(l.think)
				}
			}()
		}
	}
	for range workers {
		<-done
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestSleepingCallsLeaveSlots: a run whose calls all sleep for a minute keeps no short call of its neighbour waiting, be it that it comes
// first, or that the neighbour rests for a while between its calls.
func TestSleepingCallsLeaveSlots(t *testing.T) {
	for name, healthy := range map[string]*load{
		"at once":         {workers: 6, call: 300 * time.Millisecond, think: 700 * time.Millisecond},
		"resting":         {workers: 6, call: 300 * time.Millisecond, think: 45 * time.Second},
		"with long calls": {workers: 8, call: 5 * time.Second, think: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(16)
			sleeps := &load{workers: 20, call: time.Minute}
			s.run(10*time.Minute, map[string]*load{"sleeps": sleeps, "healthy": healthy})
			if mean := healthy.waited / time.Duration(healthy.calls); mean > healthy.call/10 {
				t.Errorf("%s: beside calls that sleep a call of %s waits %s for a slot, at most %s", name, healthy.call, mean, healthy.longest)
			}
			if least := 8 * 5 * time.Minute * 8 / 10; sleeps.slotTime < least {
				t.Errorf("%s: the calls that sleep have %s of slot time, of %s", name, sleeps.slotTime, least)
			}
		})
	}
}

// TestSleeperThatWasAlone has all slots, and gives them up when its calls end: who comes waits for one call, and not for more.
func TestSleeperThatWasAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(16)
		healthy := &load{workers: 6, call: 300 * time.Millisecond, think: 200 * time.Millisecond, started: 5 * time.Minute}
		s.run(12*time.Minute, map[string]*load{"sleeps": {workers: 20, call: time.Minute}, "healthy": healthy})
		if healthy.waited > 6*2*time.Minute {
			t.Errorf("six workers waited %s together, one of them %s at once", healthy.waited, healthy.longest)
		}
	})
}

// TestSlotTimeIsShared: however long the calls of runs that always have some, each has about its part of the slots' time, and little is lost.
func TestSlotTimeIsShared(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		synctest.Test(t, func(t *testing.T) {
			const slots, total = 8, 16 * time.Minute
			loads, told := map[string]*load{}, ""
			for i := range 2 + random.IntN(3) {
				call := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 30 * time.Second, 100 * time.Second}[random.IntN(5)]
				loads[fmt.Sprint(i)] = &load{workers: slots + 2, call: call}
				told += fmt.Sprintf(" %d: %s;", i, call)
			}
			New(slots).run(total, loads)
			all := time.Duration(0)
			fair := slots * (total / 2) / time.Duration(len(loads))
			for name, l := range loads {
				all += l.slotTime
				if l.slotTime < fair*7/10 {
					t.Errorf("seed %d,%s: run %s has %s of slot time, an equal part is %s", seed, told, name, l.slotTime, fair)
				}
			}
			if all < slots*(total/2)*8/10 {
				t.Errorf("seed %d,%s: of %s of slot time %s were used", seed, told, slots*(total/2), all)
			}
		})
	}
}
