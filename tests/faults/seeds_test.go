// Package faults lets things go wrong with small planes by schedules that seeds give, and
// judges the runs afterwards.
//
// TestFaults runs a plane in a process of its own: a kill at an event, inputs that come again, a
// store that fails, a line that breaks, a disk that is full, read-only or slow, a pause, hostile
// submissions, and more of them than the plane takes. TestZombies and TestVariants run planes in
// virtual time: a process that comes back after an hour, and the same work done in other ways.
package faults

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/program"
)

// run is the name of every run.
const run = "r"

// again is how long what was interrupted rests.
var again = retry.Policy{First: 50 * time.Millisecond, Most: time.Second}

func TestMain(m *testing.M) { os.Exit(program.Run(m)) }

// seeds are those that a test tries: a number of its own, but RONDO_FAULTS_SEED=17 is that one
// alone, and RONDO_FAULTS_SEEDS=200 the first 200.
func seeds(t *testing.T, otherwise int) []uint64 {
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("%s=%q: give a number", name, text)
		}
		return n
	}
	if one := number("RONDO_FAULTS_SEED", 1<<62); one < 1<<62 {
		return []uint64{one}
	}
	var all []uint64
	for i := range number("RONDO_FAULTS_SEEDS", uint64(otherwise)) {
		all = append(all, i)
	}
	return all
}

// dice is chance that many throw.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) one(in int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(in) == 0
}

func (d *dice) upTo(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rng.Int64N(int64(most)))
}
