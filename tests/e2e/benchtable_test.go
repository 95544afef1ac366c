package e2e

import "testing"

// TestBenchTable: benchmarks are run, and their figures stand in one table.
func TestBenchTable(t *testing.T) {
	t.Parallel()
	var r struct {
		Rows []struct {
			Measurement, Beside string
			Rondo, Other, Ratio float64
		}
		Missing map[string]string
	}
	mustBench(t, &r, "table", "--quick", "--only", "stage,weights,utilisation", "--quiet", "--json")
	if len(r.Missing) > 0 {
		t.Errorf("not measured: %v", r.Missing)
	}
	beside := map[string]bool{}
	for _, row := range r.Rows {
		beside[row.Beside] = true
		if !(row.Rondo > 0 && row.Other > 0 && row.Ratio > 0) {
			t.Errorf("a row is %+v", row)
		}
	}
	for _, want := range []string{"workers on nats.go", "cmp", "cp", "a barrier"} {
		if !beside[want] {
			t.Errorf("nothing stands beside %s: %+v", want, r.Rows)
		}
	}
}
