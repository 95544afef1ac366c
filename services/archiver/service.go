// Package archiver seals a run's log into Arrow segments in the store: as it grows, at
// intervals, and whole when it is closed. What is archived and over leaves the stream of an open
// run before that is full.
package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// slots is how many runs are sealed at once because of an input, beside the one of a round; each
// takes the memory of a segment.
const slots = 2

// Service consumes batch_ready, as the sign that a run goes on, and the catalogue's run_closed, as
// closed runs are served by nobody, and emits segment_sealed, and purged in an open run.
type Service struct {
	log     eventlog.Archive
	streams eventlog.Streams
	logger  *slog.Logger

	mu sync.Mutex
	// purged is how much an open run's stream held when events had left it, or could not.
	purged map[string]int64
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env) error {
	s := &Service{log: env.Log.Archive, streams: env.Log.Streams, logger: env.Logger, purged: map[string]int64{}}
	sizes, err := newStored(env.Metrics)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	measured := make(chan struct{})
	go func() { defer close(measured); sizes.measure(ctx, env.Log.Store()) }()
	defer func() { stop(); <-measured }()
	return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Archiver, Slots: slots, Handle: s.Handle,
		Recorded: s.recorded, Round: s.Round})
}

var errMoving = errors.New("the closed run still moves")

// Handle seals the next segment of the input's run. It is called until there is none. The consumers
// of a closed run go then.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	run, through := m.Event.Run, uint64(0)
	if m.Event.Type == events.RunClosedType {
		run = m.Event.Entity
		wait, err := s.log.AtRest(ctx, run)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil, nil // it was deleted, after it was archived by hand
		}
		if err != nil {
			return nil, err
		}
		if wait > 0 {
			return nil, pipeline.RetryAfter(errMoving, wait)
		}
		in, err := s.log.Incarnation(ctx, run)
		if err != nil {
			return nil, fmt.Errorf("archive run %s: %w", run, err)
		}
		through = in.LastSeq
	}
	facts, err := s.next(ctx, run, through)
	if err == nil && len(facts) == 0 && m.Event.Type == events.RunClosedType {
		return nil, s.settle(ctx, run, m.Delivered)
	}
	return facts, err
}

// A consumer that is used in a closed run is looked at again settleEvery, at settleTries deliveries
// at most. Then it goes with the run's stream.
const (
	settleEvery = time.Minute
	settleTries = runfile.Deliveries / 2
)

var errServed = errors.New("a consumer of the closed run is still used")

// settle lets go of a closed run that is archived to its end.
func (s *Service) settle(ctx context.Context, run string, delivered uint64) error {
	s.mu.Lock()
	delete(s.purged, run)
	s.mu.Unlock()
	stay, err := s.streams.RemoveConsumers(ctx, run)
	s.streams.Release(run)
	if err == nil && stay > 0 {
		err = errServed
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case delivered < settleTries:
		return pipeline.RetryAfter(err, settleEvery)
	}
	s.logger.Warn("consumers not removed", "run", run, "consumers", stay, "error", err)
	return nil
}

// Round seals what an open run's stream holds when its archive is older than the run's settings
// say, or the stream fills up, and then lets go of what is over. Archivers ask at different
// moments, and the one that is first is enough.
func (s *Service) Round(ctx context.Context, run string,
	cfg runfile.RunConfig) (pipeline.Handler, time.Duration, error) {
	every := cfg.Log.Every()
	early := every / 10
	archived, err := s.log.Archived(ctx, run)
	if err != nil {
		return nil, 0, fmt.Errorf("archive run %s: %w", run, err)
	}
	wait, rest := time.Until(archived.At.Add(every-early)), every-early
	fills := false
	if cfg.Log.Forgets() {
		if fills, err = s.fills(ctx, run); err != nil {
			return nil, 0, fmt.Errorf("archive run %s: %w", run, err)
		}
		rest = min(rest, lookEvery)
	}
	switch {
	case wait > 0 && !fills:
		return nil, min(wait+rand.N(early), rest), nil
	case archived.Last == archived.Through && !fills:
		return nil, rest, nil
	}
	return func(ctx context.Context, _ pipeline.Message) ([]events.Event, error) {
		facts, err := s.next(ctx, run, archived.Last)
		if err != nil || !cfg.Log.Forgets() {
			return facts, err
		}
		return s.purge(ctx, run)
	}, rest, nil
}

const (
	// lookEvery is how often an archiver looks how full a stream is.
	lookEvery = 5 * time.Second
	// grownBy is the part of its size by which a stream has to grow until it is purged again.
	grownBy = 64
)

// fills reports whether a run's stream is so full that something should leave it, and has grown
// since that was tried. It also does where the run was not told of what has left: by one who died
// then, or had no answer. The sampler may wait for that.
func (s *Service) fills(ctx context.Context, run string) (bool, error) {
	bytes, most, err := s.log.Size(ctx, run)
	if err != nil {
		return false, err
	}
	if float64(bytes) >= eventlog.PurgeAt*float64(most) && s.grown(run, int64(bytes), most) {
		return true, nil
	}
	fact, err := s.log.PurgedFact(ctx, run)
	return fact != nil, err
}

// grown reports whether a stream has grown since something left it, or could not.
func (s *Service) grown(run string, bytes, most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.purged[run]
	return !known || bytes < before || bytes >= before+most/grownBy
}

// purge lets go of what is archived and over, and makes the event that says so.
func (s *Service) purge(ctx context.Context, run string) ([]events.Event, error) {
	rollouts, err := s.log.PurgeEnded(ctx, run)
	if err != nil {
		return nil, err
	}
	bytes, _, err := s.log.Size(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("purge run %s: %w", run, err)
	}
	s.mu.Lock()
	s.purged[run] = int64(bytes)
	s.mu.Unlock()
	if rollouts > 0 {
		s.logger.Info("log purged", "run", run, "rollouts", rollouts, "bytes_left", bytes)
	}
	fact, err := s.log.PurgedFact(ctx, run)
	if err != nil || fact == nil {
		return nil, err
	}
	return []events.Event{*fact}, nil
}

// next makes a run's next segment, and asks for another call.
func (s *Service) next(ctx context.Context, run string, through uint64) ([]events.Event, error) {
	fact, err := s.log.NextSegment(ctx, run, through)
	if err != nil {
		return nil, fmt.Errorf("archive run %s: %w", run, err)
	}
	if fact == nil {
		return nil, nil
	}
	return []events.Event{*fact}, pipeline.ErrCallAgain
}

// recorded logs segments.
func (s *Service) recorded(_ context.Context, _ pipeline.Message, facts []events.Event) error {
	if facts[0].Type != events.SegmentSealedType {
		return nil
	}
	segment, err := events.Data[events.SegmentSealed](facts[0])
	if err == nil {
		s.logger.Info("log segment sealed", "run", facts[0].Entity, "first", segment.First, "last", segment.Last,
			"bytes", segment.Segment.Size)
	}
	return err
}
