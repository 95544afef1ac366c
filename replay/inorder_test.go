package replay

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// counted gives the numbers below n, and an error behind them.
func counted(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

func TestInOrder(t *testing.T) {
	const workers = 3
	var at, most atomic.Int64
	var got []int
	var first sync.WaitGroup
	first.Add(2)
	for v, err := range inOrder(t.Context(), counted(50, nil), workers, func(_ context.Context, i int) (int, error) {
		now := at.Add(1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		if i < 2 { // neither ends before the other has begun
			first.Done()
			first.Wait()
		}
		at.Add(-1)
		return i * i, nil
	}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	for i := range 50 {
		if i >= len(got) || got[i] != i*i {
			t.Fatalf("got %v", got)
		}
	}
	if most.Load() < 2 || most.Load() > workers {
		t.Errorf("%d worked at once", most.Load())
	}
}

func TestInOrderEnds(t *testing.T) {
	broken := errors.New("broken")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		values iter.Seq2[int, error]
		fails  int // value at which the work fails
		want   []int
		err    error
	}{
		"nothing":                {t.Context(), counted(0, nil), -1, nil, nil},
		"an error of the values": {t.Context(), counted(2, broken), -1, []int{0, 1}, broken},
		"an error of the work":   {t.Context(), counted(100, nil), 2, []int{0, 1}, broken},
		"an end of the context":  {cancelled, counted(100, nil), 0, nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			var failed error
			for v, err := range inOrder(c.ctx, c.values, 2, func(ctx context.Context, i int) (int, error) {
				if i == c.fails {
					return 0, errors.Join(ctx.Err(), broken)
				}
				return i, ctx.Err()
			}) {
				if failed = err; err == nil {
					got = append(got, v)
				}
			}
			if !slices.Equal(got, c.want) || !errors.Is(failed, c.err) || c.err == nil && failed != nil {
				t.Errorf("%s: got %v, %v", name, got, failed)
			}
		})
	}
	// Whoever has enough leaves nobody at work behind.
	var at atomic.Int64
	for range inOrder(t.Context(), counted(1000, nil), 4, func(ctx context.Context, i int) (int, error) {
		at.Add(1)
		defer at.Add(-1)
		if i > 0 {
			<-ctx.Done()
		}
		return i, nil
	}) {
		break
	}
	if at.Load() != 0 {
		t.Errorf("%d are still at work", at.Load())
	}
}
