package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// looks lets an estimate look every two seconds at a server that is asked as much as it is thought
// to do and can do so much.
func looks(c *Capacity, from time.Time, n, slots, can int) (turns int, now time.Time) {
	turns = slots
	if e := c.servers["a"]; e != nil {
		turns = int(e.turns + 0.5)
	}
	for now = from; n > 0; n-- {
		now = now.Add(2 * time.Second)
		asked := min(turns+4, slots)
		load := &inference.Load{Running: min(asked, can), Waiting: max(0, asked-can), KVUsage: 0.5}
		turns = c.Look(now, []Server{{URL: "a", Slots: slots, Load: load}})[0]
	}
	return turns, now
}

// TestCapacityFindsWhatAServerCanDo: it comes to what runs while requests wait, stays there, and
// goes up again when the server can do more.
func TestCapacityFindsWhatAServerCanDo(t *testing.T) {
	var c Capacity
	turns, now := looks(&c, time.Unix(0, 0), 10, 256, 40)
	if turns != 40 {
		t.Errorf("of a server of 40 sequences it says %d", turns)
	}
	lowest, highest := turns, turns
	for range 100 {
		turns, now = looks(&c, now, 1, 256, 40)
		lowest, highest = min(lowest, turns), max(highest, turns)
	}
	if lowest < 40 || highest > 42 {
		t.Errorf("then it says %d to %d", lowest, highest)
	}
	if turns, now = looks(&c, now, 400, 256, 200); turns != 200 {
		t.Errorf("when the server can do 200, it says %d", turns)
	}
	if turns, _ = looks(&c, now, 10, 256, 3); turns != 3 {
		t.Errorf("when it can do 3, it says %d", turns)
	}
}

// TestCapacityOfOthers: memory that is nearly full counts as requests that wait; without
// metrics the ramp counts where it has been told to wait, and else the slots; and an idle
// server leaves the estimate as it is.
func TestCapacityOfOthers(t *testing.T) {
	now := time.Unix(0, 0)
	for name, s := range map[string]struct {
		server Server
		want   int
	}{
		"memory nearly full": {Server{Slots: 64, Load: &inference.Load{Running: 20, KVUsage: 0.97}},
			20},
		"idle":                    {Server{Slots: 64, Load: &inference.Load{}}, 64},
		"waits, and runs nothing": {Server{Slots: 64, Load: &inference.Load{Waiting: 5}}, 1},
		"waits, by an earlier look": {Server{Slots: 64, Stale: true, Load: &inference.Load{Waiting: 5}},
			64},
		"no metrics":                          {Server{Slots: 64, Allowed: 8}, 64},
		"no metrics, and has told us to wait": {Server{Slots: 64, Allowed: 8, Limited: true}, 8},
		"runs more than the generators have of": {Server{Slots: 64, Load: &inference.Load{Running: 900, Waiting: 9}},
			64},
	} {
		var c Capacity
		got := 0
		for range 12 {
			got = c.Look(now, []Server{s.server})[0]
		}
		if got != s.want {
			t.Errorf("%s: %d turns, want %d", name, got, s.want)
		}
	}
}

// TestLoadOutlastsABusyServer: a server that has said its load and does not answer the next look is
// busy. What it said holds for a while.
func TestLoadOutlastsABusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, farm := newFarm(t, nil, nil)
		farm.pages = map[string]string{"/metrics": "vllm:num_requests_running 5\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.5\n"}
		if l := f.load(t.Context(), "http://a/v1", ""); l.load == nil || l.load.Running != 5 || l.stale() {
			t.Errorf("at first %+v", l)
		}
		farm.pages = nil
		time.Sleep(2 * loadFor)
		if l := f.load(t.Context(), "http://a/v1", ""); l.load == nil || l.load.Running != 5 || !l.stale() {
			t.Errorf("when it does not answer %+v", l)
		}
		time.Sleep(noLoadFor)
		if l := f.load(t.Context(), "http://a/v1", ""); l.load != nil {
			t.Errorf("when it has not answered for long %+v", l.load)
		}
	})
}
