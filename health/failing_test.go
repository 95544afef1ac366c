package health

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRowOfFailures: a row counts once it has lasted, and ends with a success or a pause.
func TestRowOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := failures{pause: 20 * time.Second, least: 15 * time.Second}
		began := time.Now()
		for range 3 {
			if len(f.outages()) > 0 {
				t.Errorf("after %s: %v", time.Since(began), f.outages())
			}
			f.note("a", errors.New("no answer"))
			time.Sleep(9 * time.Second)
		}
		f.note("b", errors.New("once"))
		if list := f.outages(); len(list) != 1 || list[0].Of != "a" || !list[0].Since.Equal(began) ||
			list[0].Reason != "no answer" {
			t.Errorf("a row of 18 s: %v", list)
		}
		time.Sleep(12 * time.Second)
		if list := f.outages(); len(list) != 0 || len(f.rows) != 1 {
			t.Errorf("21 s after the last failure: %v, rows %v", list, f.rows)
		}
		time.Sleep(9 * time.Second)
		f.note("b", errors.New("after a pause of 21 s"))
		if list := f.outages(); len(list) != 0 {
			t.Errorf("a failure after a pause went on with the row before it: %v", list)
		}
		time.Sleep(15 * time.Second)
		f.note("b", errors.New("again"))
		if list := f.outages(); len(list) != 1 {
			t.Errorf("a row of 15 s: %v", list)
		}
		if f.note("b", nil); len(f.outages()) != 0 {
			t.Errorf("after a success: %v", f.outages())
		}
		slow := failures{pause: 10 * time.Second}
		slow.note("", errors.New("slow"))
		time.Sleep(10 * time.Second)
		if list := slow.outages(); len(list) != 1 {
			t.Errorf("one failure, where a row need not last: %v", list)
		}
	})
}
