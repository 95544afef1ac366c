package health

import (
	"context"
	"errors"
)

// errSilent: a question was not answered within Patience.
var errSilent = errors.New("no answer")

// probe asks one question at a time: a disk that hangs keeps one goroutine, not one for each look.
type probe[T any] struct{ under chan reply[T] }

type reply[T any] struct {
	value T
	err   error
}

// ask gives the answer, or errSilent when the context ends first. A question that is still open is
// not asked a second time.
func (p *probe[T]) ask(ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	if p.under != nil {
		select {
		case <-p.under: // to a look that did not wait for it: too old
			p.under = nil
		default:
		}
	}
	if p.under == nil {
		p.under = make(chan reply[T], 1)
		// Who asks may go away; the answer is somebody else's then.
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), Patience)
		go func(answer chan<- reply[T]) {
			defer cancel()
			value, err := question(asking)
			answer <- reply[T]{value, err}
		}(p.under)
	}
	select {
	case r := <-p.under:
		p.under = nil
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, errSilent
	}
}
