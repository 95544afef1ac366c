package nightly

import "testing"

func TestEnabled(t *testing.T) {
	if enabled("") || !enabled("1") {
		t.Error("RONDO_NIGHTLY=1 makes tests long, and nothing else does")
	}
	defer func() {
		if recover() == nil {
			t.Error("RONDO_NIGHTLY=yes is taken for something")
		}
	}()
	enabled("yes")
}

func TestOnly(t *testing.T) {
	for value, skipped := range map[string]bool{"": true, "1": false} {
		t.Setenv("RONDO_NIGHTLY", value)
		t.Run("RONDO_NIGHTLY="+value, func(t *testing.T) {
			defer func() {
				if t.Skipped() != skipped {
					t.Errorf("the test is skipped: %v, want %v", t.Skipped(), skipped)
				}
			}()
			Only(t)
		})
		if want := map[string]int{"": 2, "1": 20}[value]; Count(2, 20) != want {
			t.Errorf("RONDO_NIGHTLY=%s: %d repetitions, want %d", value, Count(2, 20), want)
		}
	}
}
