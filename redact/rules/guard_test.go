package rules

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pieces are what secrets and what is like them consist of.
var pieces = []string{
	"access", "auth", "Api", "API", "credential", "creds", "KEY", "key", "passwd", "password", "secret", "tok", "token",
	"s.", "hvs.", "ſecret", "\u212aey",
	"primary_", "x", "_", "-", ".", " ", "\t", "\n", "\r\n", "'", "\"", "`", "=", ":=", " : ", "=>", "||", ",",
	">", ";", ")", "\\n", "é",
	"zxcvbn12", "Q7rT2mV9kL4pW8sX3bN6", "jd83kf02ls94mf7d1ka6v8x2", "0123456789", "aB+/", strings.Repeat("a7Kx9", 19),
	"gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X",
}

func randomText(random *rand.Rand) string {
	var b strings.Builder
	for range 1 + random.IntN(24) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	return b.String()
}

// sameFindings compares what is found with guards and without.
func sameFindings(t *testing.T, s *Set, text string) (found, guarded bool) {
	t.Helper()
	got, want := s.Find(text), s.find(text, false)
	if !slices.Equal(got, want) {
		t.Fatalf("in %q found %+v, without guards %+v", text, got, want)
	}
	lower, ok := lower(text)
	return len(want) > 0, ok && !slices.ContainsFunc(s.rules,
		func(r rule) bool { return r.guard != nil && r.may(text, lower) })
}

// TestGuards shows that the guards are used and that no finding depends on them.
func TestGuards(t *testing.T) {
	s, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	found, guarded := 0, 0
	for range 300 {
		some, by := sameFindings(t, s, randomText(random))
		if some {
			found++
		}
		if by {
			guarded++
		}
	}
	if found < 30 || guarded < 30 {
		t.Errorf("of 300 texts %d have secrets and %d are guarded: too few to tell", found, guarded)
	}
}

func FuzzGuards(f *testing.F) {
	s, err := Default()
	if err != nil {
		f.Fatal(err)
	}
	random := rand.New(rand.NewPCG(2, 2))
	for range 20 {
		f.Add(randomText(random))
	}
	f.Fuzz(func(t *testing.T, text string) { sameFindings(t, s, text) })
}

// BenchmarkGuards searches Go source, which has the guarded rules' keywords in it and no secret,
// with guards and without; the metric is how many times longer it takes without guards.
func BenchmarkGuards(b *testing.B) {
	s, err := Default()
	if err != nil {
		b.Fatal(err)
	}
	source, err := os.ReadFile("rules.go")
	if err != nil {
		b.Fatal(err)
	}
	text := string(source)
	var guarded, all time.Duration
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		began := time.Now()
		s.Find(text)
		between := time.Now()
		s.find(text, false)
		guarded, all = guarded+between.Sub(began), all+time.Since(between)
	}
	b.ReportMetric(float64(all)/float64(guarded), "all/guarded")
}
