package natstest

import (
	"testing"
	"time"
)

// Patience is how long tests wait for what must come: a busy machine is slow.
const Patience = 5 * time.Minute

// Eventually polls until a condition holds, for changes that no signal announces. It polls rarely
// after a while, and fails the test at last.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := time.Millisecond
	for deadline := time.Now().Add(Patience); !holds(); pause = min(2*pause, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", Patience, what)
		}
		time.Sleep(pause)
	}
}
