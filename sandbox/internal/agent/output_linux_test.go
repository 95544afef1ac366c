package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestOutputKeepsBothEnds compares with the plain way: keep everything, then cut,
// whatever pieces it came in.
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
			want = fmt.Appendf(bytes.Clone(all[:limit/2]), "\n[... %d bytes dropped ...]\n%s", dropped,
				all[len(all)-(limit-limit/2):])
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

// TestFloodIsEndedByItsLimit: a pipe that nobody reads any more stays open until the command has
// ended, so that its limit ends it and not a SIGPIPE.
func TestFloodIsEndedByItsLimit(t *testing.T) {
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writing.Close()
	var s stream
	flood := make(chan struct{}, 1)
	s.begin(reading, 1, flood)
	if _, err := writing.Write(make([]byte, floodFactor+1)); err != nil {
		t.Fatal(err)
	}
	<-flood
	select {
	case <-s.done:
		t.Error("the pipe is closed before the command has ended")
	case <-time.After(50 * time.Millisecond):
	}
	if got := s.finish(); !bytes.Contains(got, []byte("bytes dropped")) {
		t.Errorf("output: %q", got)
	}
}
