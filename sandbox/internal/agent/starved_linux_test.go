package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStarved(t *testing.T) {
	seconds := func(ran, waited int) usage {
		return usage{time.Duration(ran) * time.Second, time.Duration(waited) * time.Second}
	}
	for name, c := range map[string]struct {
		before, now map[int]usage
		want        int // of 10 s
	}{
		"nothing runs":                     {nil, nil, 0},
		"it sleeps":                        {map[int]usage{1: seconds(1, 1)}, map[int]usage{1: seconds(1, 1)}, 0},
		"it has a processor":               {map[int]usage{1: seconds(1, 1)}, map[int]usage{1: seconds(11, 1)}, 0},
		"it has one a quarter of the time": {map[int]usage{1: seconds(1, 1)}, map[int]usage{1: seconds(3, 9)}, 8},
		"its threads wait for each other": {map[int]usage{1: seconds(0, 0), 2: seconds(0, 0)},
			map[int]usage{1: seconds(5, 5), 2: seconds(5, 5)}, 0},
		"all of them get half of one":        {nil, map[int]usage{1: seconds(2, 8), 2: seconds(3, 7)}, 5},
		"one waits, and one sleeps":          {nil, map[int]usage{1: seconds(1, 4), 2: seconds(0, 0)}, 4},
		"one that is gone had the processor": {map[int]usage{1: seconds(5, 5)}, map[int]usage{2: seconds(1, 0)}, 0},
	} {
		if got := starved(c.before, c.now, 10*time.Second); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: %s, want %d s", name, got, c.want)
		}
	}
}

// TestLimitOfAStarvedCommand: a command that the machine lets run for a part of the time has its
// limit of running time, and at most four limits in all.
func TestLimitOfAStarvedCommand(t *testing.T) {
	for share, want := range map[float64]time.Duration{1: 10 * time.Second, 0.5: 20 * time.Second,
		0.25: 40 * time.Second, 0: 40 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			read := func() map[int]usage {
				passed := float64(time.Since(began))
				return map[int]usage{7: {time.Duration(passed * share), time.Duration(passed * (1 - share))}}
			}
			h, stop := newHunger(10*time.Second, read), make(chan struct{})
			<-h.watch(stop)
			if took := time.Since(began); took < want-time.Second || took > want+time.Second ||
				h.starved() < want-11*time.Second || h.starved() > 30*time.Second {
				t.Errorf("with a processor for %g of the time it is over after %s, starved for %s; want %s", share,
					took, h.starved(), want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // nothing is left behind where the command ends by itself
		stop := make(chan struct{})
		newHunger(time.Hour, func() map[int]usage { return nil }).watch(stop)
		close(stop)
	})
}
