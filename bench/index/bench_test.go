package index

import "testing"

func TestSize(t *testing.T) {
	var r Result
	if err := r.size(t.Context(), Options{Queries: 4}, t.TempDir(), 2000, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if s := r.Sizes[0]; s.Recall10 < 0.95 || s.Recall10 > 1 || s.WarmP50 <= 0 || s.ColdP99 < s.ColdP50 ||
		s.BytesPerChunk < dimensions || s.BytesPerChunk > 5000 {
		t.Errorf("measured %+v", s)
	}
}

func TestOptions(t *testing.T) {
	if o, err := (Options{}).withDefaults(); err != nil || o.Questions != 1000 || o.Times != 10 ||
		len(o.Chunks) != 3 || o.Queries != 50 {
		t.Errorf("defaults %+v, %v", o, err)
	}
	for _, o := range []Options{{Questions: 1}, {Times: -1}, {Queries: 1}, {Chunks: []int{10}}} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v are no options", o)
		}
	}
}

func TestPercentile(t *testing.T) {
	if p := percentile([]float64{5, 1, 4, 2, 3}, 0.5); p != 3 {
		t.Errorf("the median is %v", p)
	}
	if p := percentile([]float64{5, 1}, 0.99); p != 5 {
		t.Errorf("the 99th percentile is %v", p)
	}
}
