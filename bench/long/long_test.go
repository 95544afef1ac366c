package long

import (
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func TestRun(t *testing.T) {
	sandboxtest.Require(t)
	var said []string
	o := Options{Lengths: []int{60, 20}, Rollouts: 2, Tokens: 128, Dir: t.TempDir()}
	shown := 0
	r, err := Run(t.Context(), o, func(line string) { said = append(said, line) }, func(string) { shown++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(said) != 2 || shown != 2*(60+20) || len(r.Lengths) != 2 || r.Lengths[0].Turns != 20 {
		t.Errorf("said %q, showed progress %d times: %+v", said, shown, r)
	}
	// An id has 18 bits, a log-probability 32, and JSON would take 19 bytes.
	if r.LogPerToken < 3 || r.LogPerToken > 7 {
		t.Errorf("%.2f bytes on the log for each sampled token", r.LogPerToken)
	}
	// The first tenth has the task in it, so the last one has less.
	if r.BytesRatio <= 0.5 || r.BytesRatio > 1.1 {
		t.Errorf("the bytes of a turn grow by %.2f: %+v", r.BytesRatio, r.Lengths)
	}
	for _, l := range r.Lengths {
		if l.Allocated < 10 || l.AllocatedRequests < 100 || l.Objects < 100 || len(l.AllocatedParts) != parts ||
			len(l.ObjectsParts) != parts {
			t.Errorf("a turn of %d allocates %.0f kB, %.0f objects, and its request %.0f kB: %v, %v", l.Turns,
				l.Allocated, l.Objects, l.AllocatedRequests, l.AllocatedParts, l.ObjectsParts)
		}
	}
	if r.CPURatio1000 != 0 || r.AllocatedRatio1000 != 0 || r.AllocatedRatio <= 0 || r.RSS <= 0 || r.HeapRatio <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"too short":     {Lengths: []int{19}},
		"too long":      {Lengths: []int{10_001}},
		"none":          {Lengths: []int{}},
		"no rollouts":   {Rollouts: -1},
		"no tokens":     {Tokens: 15},
		"many rollouts": {Rollouts: 65},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Run(t.Context(), o, func(string) {}, func(string) {}); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}
