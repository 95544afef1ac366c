package scripted

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestGates: all rollouts wait for each other before a gate's turn, and for what is done meanwhile;
// other turns pass, and one that has left must come again.
func TestGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan int)
		work := make(chan bool)
		g := &Gates{Turns: []int{2, 5}, Rollouts: 3, Reached: func(_ context.Context, gate int) {
			reached <- gate
			<-work
		}}
		passed := make(chan bool, 10)
		come := func(ctx context.Context, turn int) {
			go func() { passed <- g.pass(ctx, turn) }()
			synctest.Wait()
		}
		through := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if len(passed) != want {
				t.Fatalf("%s: %d have passed, want %d", when, len(passed), want)
			}
			for range want {
				if !<-passed {
					t.Errorf("%s: one that waits is told that it has gone", when)
				}
			}
		}
		for gate, turn := range g.Turns {
			come(t.Context(), turn-1)
			through(1, "before the gate")
			gone, leave := context.WithCancel(t.Context())
			come(gone, turn)
			come(t.Context(), turn)
			leave()
			synctest.Wait()
			if len(passed) != 1 || <-passed {
				t.Errorf("one has left: %d have passed, want 1 that has not", len(passed))
			}
			come(t.Context(), turn)
			through(0, "two of three are there")
			select {
			case <-reached:
				t.Fatal("the gate is reached by two of three")
			default:
			}
			come(t.Context(), turn)
			if at := <-reached; at != gate {
				t.Errorf("gate %d is reached, want %d", at, gate)
			}
			come(t.Context(), turn-1)
			through(1, "a request of before")
			work <- true
			through(3, "all are there")
			come(t.Context(), turn)
			through(1, "behind the gate")
		}
		if !(*Gates)(nil).pass(t.Context(), 2) {
			t.Error("no gate does not let pass")
		}
	})
}
