package toolrunner

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

// endings tells of rollouts that are over. No turn asks a tool runner for anything then, so that it
// would keep their sandboxes.
type endings struct {
	log     eventlog.Reader
	logger  *slog.Logger
	over    func(run, rollout string)
	mu      sync.Mutex
	watched map[string]*watch // by run
}

// watch is over one run, for as long as it has sandboxes here.
type watch struct {
	uses int
	stop context.CancelFunc
}

func newEndings(log eventlog.Reader, logger *slog.Logger, over func(run, rollout string)) *endings {
	return &endings{log: log, logger: logger, over: over, watched: map[string]*watch{}}
}

// watch tells of the endings in a run that come behind a sequence, until done is called.
func (e *endings) watch(run string, behind uint64) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.watched[run]
	if w == nil {
		ctx, stop := context.WithCancel(context.Background())
		w = &watch{stop: stop}
		e.watched[run] = w
		go e.follow(ctx, run, events.RolloutFinishedType, behind+1)
		go e.follow(ctx, run, events.RolloutFailedType, behind+1)
	}
	w.uses++
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if w.uses--; w.uses == 0 {
			w.stop()
			delete(e.watched, run)
		}
	})
}

// followAgain is how long to wait after a run's log could not be followed.
var followAgain = retry.Policy{First: time.Second, Most: 5 * time.Second}

func (e *endings) follow(ctx context.Context, run string, t events.Type, from uint64) {
	filter := events.Event{Run: run, Type: t, Entity: "*"}.Subject()
	_ = followAgain.Keep(ctx, func() (bool, error) {
		err := e.log.Follow(ctx, run, from, filter, func(end events.Event) error {
			from = end.Seq + 1
			e.over(run, end.Entity)
			return nil
		})
		return ctx.Err() != nil || errors.Is(err, eventlog.ErrNotFound), err
	}, func(err error, wait time.Duration) {
		e.logger.Warn("rollout endings unavailable", "run", run, "retry_in", wait, "error", err)
	})
}
