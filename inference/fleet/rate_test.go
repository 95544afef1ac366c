package fleet

import (
	"testing"
	"time"
)

// TestBucket: a minute's worth at once, then as it fills; what went beyond is waited for.
func TestBucket(t *testing.T) {
	at := time.Unix(1000, 0)
	b := Bucket{PerMinute: 60}
	for i := range 60 {
		if w := b.Wait(at, 1); w != 0 {
			t.Fatalf("the %d-th waits %s", i, w)
		}
		b.Take(1)
	}
	if w := b.Wait(at, 1); w != time.Second {
		t.Errorf("the next one waits %s", w)
	}
	if w := b.Wait(at.Add(time.Second), 1); w != 0 {
		t.Errorf("a second later it waits %s", w)
	}
	debt := Bucket{PerMinute: 60, at: at}
	debt.Take(180)
	if w := debt.Wait(at, 0); w != 2*time.Minute {
		t.Errorf("twice the bucket in debt waits %s", w)
	}
	if w := debt.Wait(at.Add(-time.Hour), 0); w != 2*time.Minute {
		t.Errorf("a clock that goes back gives %s", w)
	}
	if w := debt.Wait(at.Add(2*time.Minute), 0); w != 0 {
		t.Errorf("two minutes later it waits %s", w)
	}
	none := Bucket{}
	none.Take(1e9)
	if w := none.Wait(at, 1); w != 0 {
		t.Errorf("without a limit it waits %s", w)
	}
}
