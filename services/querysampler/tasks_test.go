package querysampler

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Each epoch tries every task once, in an order of its own.
func TestTasksWithoutReplacement(t *testing.T) {
	d := NewDecider(testRun, config(nil))
	count := int64(len(d.cfg.Tasks))
	orders := map[string]bool{}
	for epoch := range int64(20) {
		var order []string
		for i := range count {
			order = append(order, d.task(epoch*count+i+1))
		}
		orders[strings.Join(order, " ")] = true
		slices.Sort(order)
		if order = slices.Compact(order); int64(len(order)) != count {
			t.Errorf("epoch %d tries only %v", epoch, order)
		}
	}
	if len(orders) < 10 {
		t.Errorf("20 epochs have only %d orders", len(orders))
	}
	other := NewDecider(testRun, config(func(c *runfile.RunConfig) { c.Seed = 1 }))
	same := true
	for n := range 4 * count {
		same = same && d.task(n+1) == other.task(n+1)
		if again := NewDecider(testRun, config(nil)); again.task(n+1) != d.task(n+1) {
			t.Errorf("group %d: the same seed draws another task", n+1)
		}
	}
	if same {
		t.Error("two seeds draw the same tasks")
	}
}

// Uniform: over many seeds each task comes first about equally often.
func TestTasksAreUniform(t *testing.T) {
	first := map[string]int{}
	const draws = 5000
	for seed := range int64(draws) {
		first[NewDecider(testRun, config(func(c *runfile.RunConfig) { c.Seed = seed })).task(1)]++
	}
	// Chi-squared with 4 degrees of freedom is below 18.5 in 999 of 1000 cases; the seeds are fixed.
	var chi float64
	for _, n := range first {
		d := float64(n) - draws/5
		chi += d * d / (draws / 5)
	}
	if chi > 18.5 || len(first) != 5 {
		t.Errorf("first draws %v, chi-squared %.1f", first, chi)
	}
}
