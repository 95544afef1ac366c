package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
)

const (
	// rememberedStrangers bounds the queues of strangers that are remembered in each
	// line; a search finds the others when these are served. Whoever may name any run
	// could have as many as messages.
	rememberedStrangers = 4096
	// strangersAtOnce bounds the queues that are served in one round.
	strangersAtOnce = 256
	// strangersTurn is how long a round lasts at most while others wait.
	strangersTurn = time.Second
	// strangersEvery is how often a round is looked at.
	strangersEvery = 20 * time.Millisecond
)

// strangers are the queues of runs and policies that are not open. They are served in rounds, by
// one consumer that selects the queues of its round: a name that somebody invents costs a filter.
// They are one tenant of the slots and of the turns at the log. There are two lines: what may open
// a run, or make a policy or a repository known, does not wait behind all else.
type strangers struct {
	// came has a value when a queue waits, and search when not all could be remembered.
	came, search chan struct{}

	mu         sync.Mutex
	opening    []topology.Queue
	waiting    []topology.Queue
	remembered map[string]bool // the names of both
	missed     bool
}

func newStrangers() *strangers {
	return &strangers{came: make(chan struct{}, 1), search: make(chan struct{}, 1), remembered: map[string]bool{}}
}

func (s *strangers) add(queues ...topology.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queue := range queues {
		line := &s.waiting
		if queue.Kind == events.RunOpenedType.Kind() || queue.Kind != "" && queue.Run == events.Catalogue {
			line = &s.opening
		}
		switch {
		case s.remembered[queue.Name]:
		case len(*line) >= rememberedStrangers:
			s.missed = true
		default:
			s.remembered[queue.Name] = true
			*line = append(*line, queue)
		}
	}
	signal(s.came)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take gives the queues of the next round, those that have waited longest, half of them of each
// line where both have as many.
func (s *strangers) take() []topology.Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	opening := min(len(s.opening), strangersAtOnce-min(len(s.waiting), strangersAtOnce/2))
	waiting := min(len(s.waiting), strangersAtOnce-opening)
	round := slices.Concat(s.opening[:opening], s.waiting[:waiting])
	s.opening, s.waiting = slices.Clone(s.opening[opening:]), slices.Clone(s.waiting[waiting:])
	for _, queue := range round {
		delete(s.remembered, queue.Name)
	}
	if s.missed && !s.wait() {
		s.missed = false
		signal(s.search)
	}
	return round
}

// wait reports whether queues wait for their round. The caller holds mu.
func (s *strangers) wait() bool { return len(s.opening)+len(s.waiting) > 0 }

// anyWaits is wait for others.
func (s *strangers) anyWaits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait()
}

// serveStrangers serves the queues of strangers until the context ends.
func (q *queues) serveStrangers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.strangers.came:
		}
		for round := q.strangers.take(); len(round) > 0 && ctx.Err() == nil; round = q.strangers.take() {
			var strangers []topology.Queue
			for _, queue := range round {
				if q.knows(queue) { // meanwhile
					q.serve(ctx, queue)
				} else {
					strangers = append(strangers, queue)
				}
			}
			if len(strangers) == 0 {
				continue
			}
			done, err := q.round(ctx, strangers)
			if !done {
				q.strangers.add(strangers...)
			}
			if err != nil && ctx.Err() == nil {
				q.env.Logger.Warn("submissions for unknown runs not served", "service", q.effect.Name,
					"stream", q.spec.Stream, "queues", len(strangers), "error", err)
				retry.Sleep(ctx, serveAgain.First)
			}
		}
	}
}

// round serves queues together until nothing waits in them, or until one of them is a stranger's no
// more, or others have waited for a turn.
func (q *queues) round(ctx context.Context, queues []topology.Queue) (done bool, err error) {
	spec := q.spec.ForStrangers(queues)
	consumer, err := q.env.Log.Streams.EnsureConsumer(ctx, spec, "")
	if notUnique(err) { // they were known once
		if err := q.removeConsumers(ctx, queues); err != nil {
			return false, err
		}
		consumer, err = q.env.Log.Streams.EnsureConsumer(ctx, spec, "")
	}
	if err != nil {
		return false, err
	}
	serving, stop := context.WithCancel(ctx)
	var inWork sync.WaitGroup
	q.effectService.serve(serving, &inWork, spec, "")
	for began := time.Now(); retry.Sleep(ctx, strangersEvery); {
		var over bool
		over, done, err = dealtWith(ctx, consumer, queues)
		if over || err != nil || q.knowsAny(queues) || q.strangers.anyWaits() && time.Since(began) > strangersTurn {
			break
		}
	}
	stop()
	inWork.Wait()
	if ctx.Err() != nil {
		return done, nil // the server removes the consumer
	}
	return done, errors.Join(err, q.removeConsumer(ctx, spec))
}

// notUnique reports whether another consumer of a work queue selects messages that this one would.
func notUnique(err error) bool {
	const filterNotUnique = 10100
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == filterNotUnique
}

// dealtWith reports whether a consumer has nothing to do any more, and whether nothing waits in
// queues then: another process may have made it, for others.
func dealtWith(ctx context.Context, consumer jetstream.Consumer, queues []topology.Queue) (over, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askConsumerFor)
	defer cancel()
	info, err := consumer.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound): // another process has removed it
		return true, false, nil
	case err != nil:
		return false, false, fmt.Errorf("look at the consumer of %d queues: %w", len(queues), err)
	case info.NumPending > 0 || info.NumAckPending > 0:
		return false, false, nil
	}
	selected := append(info.Config.FilterSubjects, info.Config.FilterSubject)
	return true, !slices.ContainsFunc(queues, func(queue topology.Queue) bool {
		return !slices.Contains(selected,
			queue.Filter)
	}), nil
}

// knowsAny reports whether one of the queues is a stranger's no more.
func (q *queues) knowsAny(queues []topology.Queue) bool { return slices.ContainsFunc(queues, q.knows) }
