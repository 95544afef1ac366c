package replay

import (
	"context"
	"iter"
	"sync"
)

// aheadOf bounds how many results wait for a slow one before them, for each worker.
const aheadOf = 4

// inOrder works on up to n values of a sequence at once and gives the results in the order of
// the sequence. It ends with the first error, of the sequence, the work or the context, and
// when nobody works any more.
func inOrder[T, R any](ctx context.Context, values iter.Seq2[T, error], n int,
	work func(context.Context, T) (R, error)) iter.Seq2[R, error] {
	type result struct {
		value R
		err   error
	}
	return func(yield func(R, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var workers sync.WaitGroup
		defer workers.Wait()
		defer cancel()
		results := make(chan chan result, aheadOf*n)
		slots := make(chan struct{}, n)
		workers.Go(func() {
			defer close(results)
			for value, err := range values {
				one := make(chan result, 1)
				select {
				case results <- one:
				case <-ctx.Done():
					return
				}
				if err != nil {
					one <- result{err: err}
					return
				}
				slots <- struct{}{}
				workers.Go(func() {
					defer func() { <-slots }()
					r, err := work(ctx, value)
					one <- result{r, err}
				})
			}
		})
		for one := range results {
			if r := <-one; !yield(r.value, r.err) || r.err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil { // the sequence was left before its end
			var none R
			yield(none, err)
		}
	}
}
