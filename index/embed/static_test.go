package embed

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"
)

func TestStatic(t *testing.T) {
	e := Static()
	if len(e.ID()) > MaxID || e.Dimensions() != 192 {
		t.Errorf("ID %q, %d dimensions", e.ID(), e.Dimensions())
	}
	texts := []string{
		"remove a directory and everything in it",
		"RemoveAll\nfunc RemoveAll(dir string) error {\n\tfor _, entry := range entries {\n\t\tos.Remove(entry.path)\n\t}\n}",
		"Sqrt\nfunc Sqrt(x float64) float64 {\n\treturn newton(x)\n}",
		"",
	}
	v, err := e.Embed(t.Context(), texts)
	if err != nil || len(v) != len(texts) {
		t.Fatal(len(v), err)
	}
	cosine := func(a, b []float32) (sum float64) {
		for i := range a {
			sum += float64(a[i]) * float64(b[i])
		}
		return sum
	}
	for i := range 3 {
		if math.Abs(cosine(v[i], v[i])-1) > 1e-5 {
			t.Errorf("text %d has a vector of the square length %v", i, cosine(v[i], v[i]))
		}
	}
	if near, far := cosine(v[0], v[1]), cosine(v[0], v[2]); near < far+0.2 {
		t.Errorf("the question is at %.2f to its answer and at %.2f to something else", near, far)
	}
	if cosine(v[3], v[3]) != 0 {
		t.Error("an empty text has a direction")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Embed(ctx, texts); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: %v", err)
	}
}

func BenchmarkStatic(b *testing.B) {
	text, err := os.ReadFile("static.go")
	if err != nil {
		b.Fatal(err)
	}
	texts := []string{string(text)}
	e := Static()
	b.SetBytes(int64(len(texts[0])))
	for b.Loop() {
		if _, err := e.Embed(b.Context(), texts); err != nil {
			b.Fatal(err)
		}
	}
}
