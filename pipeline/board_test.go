package pipeline

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
)

// TestBoardTakesOneOfTwo: of those who have read the same version, one writes.
func TestBoardTakesOneOfTwo(t *testing.T) {
	log := natstest.Log(t)
	env := testEnv(t, log, "one")
	boards := []*Board{NewBoard(env, topology.Generator, "ramp"), NewBoard(env, topology.Generator, "ramp")}
	if text, version, err := boards[0].Read(t.Context(), "a"); text != nil || version != 0 || err != nil {
		t.Fatalf("before anybody wrote: %q, %d, %v", text, version, err)
	}
	for range 3 {
		_, version, err := boards[0].Read(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var written atomic.Int32
		var writing sync.WaitGroup
		for _, b := range boards {
			writing.Go(func() {
				ok, err := b.Write(t.Context(), "a", []byte("text"), version)
				if err != nil {
					t.Error(err)
				}
				if ok {
					written.Add(1)
				}
			})
		}
		writing.Wait()
		if n := written.Load(); n != 1 {
			t.Fatalf("%d of two have written in place of version %d", n, version)
		}
	}
	if text, version, err := boards[1].Read(t.Context(), "a"); string(text) != "text" || version == 0 || err != nil {
		t.Errorf("read %q, %d, %v", text, version, err)
	}
	if text, _, err := NewBoard(env, topology.Generator, "load").Read(t.Context(), "a"); text != nil || err != nil {
		t.Errorf("another subject has the text %q, %v", text, err)
	}
}

// TestBoardComesBack: a bucket that is gone, as with a server that has restarted, is made again.
func TestBoardComesBack(t *testing.T) {
	log := natstest.Log(t)
	b := NewBoard(testEnv(t, log, "one"), topology.Generator, "ramp")
	if ok, err := b.Write(t.Context(), "a", []byte("text"), 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := log.JetStream().DeleteKeyValue(t.Context(), topology.LeaseBucket); err != nil {
		t.Fatal(err)
	}
	_, version, err := b.Read(t.Context(), "a")
	for try := 0; err != nil && try < 3; try++ {
		_, version, err = b.Read(t.Context(), "a")
	}
	if err != nil || version != 0 {
		t.Fatalf("behind the loss: version %d, %v", version, err)
	}
	if ok, err := b.Write(t.Context(), "a", []byte("text"), 0); !ok || err != nil {
		t.Error(ok, err)
	}
}
