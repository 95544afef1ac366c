package utilisation

import "slices"

// The orders in which turns that wait for a tool runner's slot are taken.
const (
	// OrderTurns takes them as they came, which tool runners do.
	OrderTurns = "turns"
	// OrderGroups takes one of the group that has the fewest rollouts left.
	OrderGroups = "groups"
)

// tools are the slots of the tool runners and the turns that wait for one.
type tools struct {
	slots  int // 0: there are always enough
	busy   int
	groups bool // OrderGroups
	left   map[int64]int
	waits  []waiting
	// Measured, in seconds: how long turns waited for a slot, and groups took from their first turn to the end of their last rollout.
	waited, took []float64
	began        map[int64]float64
}

// waiting is a turn that waits for a slot since a moment, and what is done in it.
type waiting struct {
	of      *rollout
	since   float64
	seconds float64
	do      func()
}

func newTools(o Options) tools {
	return tools{slots: o.ToolSlots, groups: o.ToolOrder == OrderGroups, left: map[int64]int{}, began: map[int64]float64{}}
}

// begun counts a rollout of its group.
func (w *world) begun(r *rollout) {
	if w.tools.left[r.group]++; w.tools.left[r.group] == 1 {
		w.tools.began[r.group] = w.engine.now
	}
}

// over counts that it has ended.
func (w *world) over(r *rollout) {
	t := &w.tools
	if t.left[r.group]--; t.left[r.group] > 0 {
		return
	}
	w.measure(&t.took, w.engine.now-t.began[r.group])
	delete(t.left, r.group)
	delete(t.began, r.group)
}

// useTools does something when a slot was taken for so many seconds.
func (w *world) useTools(r *rollout, seconds float64, do func()) {
	w.tools.waits = append(w.tools.waits, waiting{r, w.engine.now, seconds, do})
	w.runTools()
}

// runTools lets turns that wait take what slots are free.
func (w *world) runTools() {
	t := &w.tools
	for len(t.waits) > 0 && (t.slots == 0 || t.busy < t.slots) {
		i := 0
		if t.groups {
			for j, other := range t.waits { // the first of those that have the fewest
				if t.left[other.of.group] < t.left[t.waits[i].of.group] {
					i = j
				}
			}
		}
		next := t.waits[i]
		t.waits = slices.Delete(t.waits, i, i+1)
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

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}
