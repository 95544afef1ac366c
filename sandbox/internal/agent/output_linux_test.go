package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestOutputKeepsBothEnds compares with the plain way: keep everything, then cut, whatever pieces it came in.
func TestOutputKeepsBothEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		limit := 2 + random.IntN(40)
		all := make([]byte, random.IntN(120))
		for i := range all {
			all[i] = 'a' + byte(random.IntN(26))
		}
		o := output{limit: limit}
		for rest := all; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			if written, err := o.Write(rest[:n]); written != n || err != nil {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		want := all
		if dropped := len(all) - limit; dropped > 0 {
			want = fmt.Appendf(bytes.Clone(all[:limit/2]), "\n[... %d bytes dropped ...]\n%s", dropped, all[len(all)-(limit-limit/2):])
		}
		if got := o.text(); !bytes.Equal(got, want) {
			t.Fatalf("limit %d of %q: got %q, want %q", limit, all, got, want)
		}
	}
}

type endless struct{ read int }

func (e *endless) Read(data []byte) (int, error) { e.read += len(data); return len(data), nil }

func TestFloodIsNotReadForEver(t *testing.T) {
	o, source := output{limit: 100}, &endless{}
	if !o.drain(source) || source.read > 100*floodFactor+64<<10 {
		t.Errorf("read %d bytes", source.read)
	}
}
