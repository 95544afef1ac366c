package advantage

import "testing"

func TestLinearLengthPenalty(t *testing.T) {
	rewards := []float64{1, 1, 0, 1}
	lengths := []Length{{100, 10, 2}, {50, 20, 4}, {25, 40, 1}, {}}
	for name, c := range map[string]struct {
		weights LengthWeights
		lengths []Length
		want    []float64
	}{
		"no weights":     {LengthWeights{}, lengths, []float64{0, 0, 0, 0}},
		"sampled tokens": {LengthWeights{Output: 0.2}, lengths, []float64{0.15, 0.075, 0.0375, 0}},
		"other tokens":   {LengthWeights{Input: 0.4}, lengths, []float64{0.075, 0.15, 0.3, 0}},
		"turns":          {LengthWeights{Turns: 1}, lengths, []float64{0.375, 0.75, 0.1875, 0}},
		"together":       {LengthWeights{0.2, 0.4, 1}, lengths, []float64{0.6, 0.975, 0.525, 0}},
		"no lengths":     {LengthWeights{0.2, 0.4, 1}, make([]Length, 4), []float64{0, 0, 0, 0}},
	} {
		near(t, name, LinearLengthPenalty(rewards, c.lengths, c.weights), c.want)
	}
	near(t, "negative rewards", LinearLengthPenalty([]float64{-1, -1, 0, -1}, lengths, LengthWeights{Output: 0.2}),
		[]float64{0, 0, 0, 0})
	if got := LinearLengthPenalty(nil, nil, LengthWeights{1, 1, 1}); len(got) != 0 {
		t.Errorf("nobody is penalised: %v", got)
	}
}

// The figures follow from DAPO's equation 13 with a limit of 20480 tokens and a buffer of 4096.
func TestSoftOverlong(t *testing.T) {
	for n, want := range map[int]float64{0: 0, 16384: 0, 16385: -1.0 / 4096, 18432: -0.5, 20479: -4095.0 / 4096,
		20480: -1, 20481: -1, 1 << 40: -1} {
		if got := SoftOverlong(n, 20480, 4096, 1); got != want {
			t.Errorf("%d tokens: got %g, want %g", n, got, want)
		}
	}
	if got := SoftOverlong(15, 20, 10, 2); got != -1 {
		t.Errorf("half of factor 2 is %g", got)
	}
	if got := SoftOverlong(1, 20, 20, 1); got != -0.05 {
		t.Errorf("a buffer as long as the limit: %g", got)
	}
}
