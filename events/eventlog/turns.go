package eventlog

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/slots"
)

// requestsAtOnce bounds a process's requests that the server has not answered. The server takes
// those of a connection in the order in which they come, so each waits for all that were sent
// before it: with this bound, and in turns that runs share, these are a few of each other run. It
// is large enough for a run alone, whose appends are synced together.
const requestsAtOnce = 32

// Requests are the turns of a run for requests to the server.
func (l Streams) Requests(run string) slots.Tenant { return l.requests.Tenant(run) }

// Kinds of requests: reads may be answered where appends hang, and the other way round.
const (
	kindRead   = "read"
	kindAppend = "append"
)

// request makes a request to the server for a run when it is the run's turn.
func (l *core) request(ctx context.Context, run, kind string,
	ask func() (*nats.Msg, error)) (answer *nats.Msg, err error) {
	if late := l.requests.Tenant(run).Kind(kind).Do(ctx, func() bool {
		answer, err = ask()
		return err == nil
	}); late != nil {
		return nil, late
	}
	return answer, err
}

// get asks for a message of a run's stream.
func (l *core) get(ctx context.Context, run, subject string, request []byte) (*nats.Msg, error) {
	answer, err := l.request(ctx, run, kindRead, func() (*nats.Msg, error) {
		asking, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return l.nc.RequestWithContext(asking, subject, request)
	})
	if err != nil {
		return nil, silent(ctx, err)
	}
	return answer, nil
}
