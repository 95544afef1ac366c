package utilisation

import "slices"

// tools are the slots of the tool runners and the turns that wait for one.
type tools struct {
	slots  int // 0: there are always enough
	busy   int
	waits  []waiting
	waited []float64 // measured, in seconds: how long turns waited for a slot
}

// waiting is a turn that waits for a slot since a moment, and what is done in it.
type waiting struct {
	since   float64
	seconds float64
	do      func()
}

// useTools does something when a slot was taken for so many seconds.
func (w *world) useTools(seconds float64, do func()) {
	w.tools.waits = append(w.tools.waits, waiting{w.engine.now, seconds, do})
	w.runTools()
}

// runTools lets turns that wait take what slots are free, as they came.
func (w *world) runTools() {
	t := &w.tools
	for len(t.waits) > 0 && (t.slots == 0 || t.busy < t.slots) {
		next := t.waits[0]
		t.waits = t.waits[1:]
		t.busy++
		w.measure(&t.waited, w.engine.now-next.since)
		w.after(next.seconds, func() {
			t.busy--
			next.do()
			w.runTools()
		})
	}
}

// quantile is the value below which a part of the values lies; 0 where there are none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(float64(part*float64(len(sorted)))), len(sorted)-1)]
}
