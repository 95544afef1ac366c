package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// router is a service's Watermill router. Consumers come and go with runs, and a Watermill router
// ends with its last handler, so it has one that stays until the service ends.
type router struct {
	*message.Router
	stay chan *message.Message // closed at the end
	done chan error

	mu    sync.Mutex // held while a handler is added and started: RunHandlers starts all that were added
	added int
}

// newRouter starts a router. It must be closed when nothing is run on it any more.
func newRouter(ctx context.Context) (*router, error) {
	r := &router{stay: make(chan *message.Message), done: make(chan error, 1)}
	var err error
	if r.Router, err = message.NewRouter(message.RouterConfig{CloseTimeout: graceTime},
		watermill.NopLogger{}); err != nil {
		return nil, err
	}
	r.AddConsumerHandler("stay", "", subscribed{messages: r.stay}, func(*message.Message) error { return nil })
	go func() { r.done <- r.Run(context.WithoutCancel(ctx)) }()
	<-r.Running()
	return r, nil
}

// run hands messages to a handler, within middlewares of which the first is the outermost, until
// the channel closes. The messages are in work side by side, as many as the subscriber hands out.
func (r *router) run(name string, messages <-chan *message.Message, handle message.HandlerFunc,
	middlewares ...message.HandlerMiddleware) error {
	for _, m := range slices.Backward(middlewares) {
		// Watermill's own list keeps the middlewares of handlers that have ended, and gives them to
		// the next one of the name.
		handle = m(handle)
	}
	r.mu.Lock()
	r.added++ // a consumer may be served again while its last messages are still in work, and names must differ
	h := r.AddConsumerHandler(fmt.Sprintf("%s %d", name, r.added), name, subscribed{messages},
		func(m *message.Message) error {
			_, err := handle(m)
			return err
		})
	err := r.RunHandlers(context.Background())
	r.mu.Unlock()
	if err != nil {
		return err
	}
	<-h.Stopped()
	return nil
}

// close ends the router.
func (r *router) close() {
	close(r.stay)
	<-r.done
}

// subscribed is a subscription that is there already: a Watermill router whose handler cannot
// subscribe keeps a goroutine that waits for that handler for ever.
type subscribed struct{ messages <-chan *message.Message }

// Subscribe gives the subscription.
func (s subscribed) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.messages, nil
}

// Close has nothing to close: the subscription ends with its consumer's context.
func (subscribed) Close() error { return nil }
