package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

func putIfAbsentRace(t *testing.T, s storage.Store) {
	for round := range 8 {
		key := fmt.Sprintf("race/%d", round)
		var winner atomic.Int32
		var wins atomic.Int32
		together(16, func(writer int) {
			switch err := s.PutIfAbsent(t.Context(), key, []byte(strconv.Itoa(writer))); {
			case err == nil:
				wins.Add(1)
				winner.Store(int32(writer))
			case !errors.Is(err, storage.ErrExists):
				t.Errorf("writer %d: %v", writer, err)
			}
		})
		if wins.Load() != 1 {
			t.Fatalf("round %d: %d writers won, want 1", round, wins.Load())
		}
		wantObject(t, s, key, []byte(strconv.Itoa(int(winner.Load()))))
	}
}

func compareAndSwapCreateRace(t *testing.T, s storage.Store) {
	var wins atomic.Int32
	together(16, func(writer int) {
		switch _, err := s.CompareAndSwap(t.Context(), "pointer", "", []byte(strconv.Itoa(writer))); {
		case err == nil:
			wins.Add(1)
		case !errors.Is(err, storage.ErrConflict):
			t.Errorf("writer %d: %v", writer, err)
		}
	})
	if wins.Load() != 1 {
		t.Errorf("%d writers created the object, want 1", wins.Load())
	}
}

// compareAndSwapCounter: every acknowledged increment is in the sum.
func compareAndSwapCounter(t *testing.T, s storage.Store) {
	const writers, increments = 8, 10
	_, err := s.CompareAndSwap(t.Context(), "counter", "", []byte("0"))
	must(t, err)
	together(writers, func(writer int) {
		for range increments {
			if err := increment(t.Context(), s); err != nil {
				t.Errorf("writer %d: %v", writer, err)
				return
			}
		}
	})
	wantObject(t, s, "counter", []byte(strconv.Itoa(writers*increments)))
}

func increment(ctx context.Context, s storage.Store) error {
	for {
		data, etag, err := s.Load(ctx, "counter")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(data))
		if err != nil {
			return err
		}
		_, err = s.CompareAndSwap(ctx, "counter", etag, []byte(strconv.Itoa(n+1)))
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
}

func readersSeeWholeObjects(t *testing.T, s storage.Store) {
	const size = 256 << 10
	must(t, s.Put(t.Context(), "k", make([]byte, size)))
	together(6, func(i int) {
		for round := range 8 {
			if i < 2 {
				if err := s.Put(t.Context(), "k", bytes.Repeat([]byte{byte(i*8 + round)}, size+i)); err != nil {
					t.Errorf("Put: %v", err)
				}
				continue
			}
			data, err := s.Get(t.Context(), "k")
			if err != nil {
				t.Errorf("Get: %v", err)
				continue
			}
			if len(data) < size || !bytes.Equal(data, bytes.Repeat(data[:1], len(data))) {
				t.Errorf("read a mixture of two objects (%d bytes)", len(data))
			}
		}
	})
}

// together runs n calls at once and waits for them.
func together(n int, call func(i int)) {
	var done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		done.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	done.Wait()
}
