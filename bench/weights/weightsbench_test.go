package weights

import (
	"math"
	"testing"
)

// TestRun measures a small checkpoint: sizes are those of the codec, whatever the machine does.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), Options{MiB: 16, Rates: []float64{1e-6}, Pairs: 1}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.BytesFrac == 0 || r.BytesFrac > 0.016 || r.Entropy > 1.1 {
		t.Errorf("a delta of %.4f of the bytes, %.3f of the entropy", r.BytesFrac, r.Entropy)
	}
	if r.Encode <= 0 || r.Apply <= 0 {
		t.Errorf("no speeds: %+v", r)
	}
}

func TestEntropy(t *testing.T) {
	even := map[uint16]int64{1: 2, 2: 2}
	if got := (&tally{elements: 8, changed: 4}).entropy(even); math.Abs(got-(8+4)/8.0) > 1e-9 {
		t.Errorf("8 positions of one bit and 4 values of one bit have %v bytes", got)
	}
	for value, want := range map[float32]uint16{1: 0x3f80, -2.5: 0xc020, 1.00390625: 0x3f80, 1.01171875: 0x3f82} {
		if got := bf16(value); got != want {
			t.Errorf("%v is %#x, want %#x", value, got, want)
		}
	}
}
